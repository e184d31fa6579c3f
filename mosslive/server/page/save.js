// Saves the conversation as files: the words as text, the sound as WAV.

import { element } from "./elements.js";

export function saveText(log) {
  download("txt", new Blob([log.text()], { type: "text/plain" }));
}

export function saveSound(recorder, both) {
  download("wav", recorder.wav(both));
}

function download(ending, blob) {
  const time = new Date().toISOString().slice(0, 19).replaceAll(":", "-");
  const link = element("a");
  link.href = URL.createObjectURL(blob);
  link.download = `mosslive-${time}.${ending}`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}
