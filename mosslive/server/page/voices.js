// The voice: lists those of the key, uploads one, plays a sample of the chosen one.

import { element, find } from "./elements.js";
import { inWords } from "./errors.js";
import { speech, uploadVoice, voices } from "./server.js";
import { apiKey } from "./settings.js";

const SAMPLE = "Hello. This is how I sound.";

// Raises what the server refuses.
export async function listVoices(chosen = find("voice").value) {
  const { names, uploads } = await voices(apiKey());
  const options = names.map((name) => new Option(name, name));
  if (options.length) find("voice").replaceChildren(...options);
  if (names.includes(chosen)) find("voice").value = chosen;
  find("upload-row").hidden = !uploads;
  find("one-voice").hidden = uploads;
  find("preview").disabled = !names.length;
}

export function connectVoices(view) {
  find("preview").addEventListener("click", () => attempt(view, find("preview"), preview));
  find("upload").addEventListener("click", () => attempt(view, find("upload"), upload));
}

async function preview() {
  const sound = await speech(apiKey(), find("voice").value, SAMPLE);
  const player = element("audio");
  player.src = URL.createObjectURL(sound);
  player.onended = () => URL.revokeObjectURL(player.src);
  await player.play();
}

async function upload(view) {
  const [file] = find("voice-file").files;
  if (!file) {
    view.error("Choose a recording first: a WAV, FLAC, OGG or MP3 file of one voice.");
    return;
  }
  const stem = file.name.replace(/\.[^.]*$/, "");
  const name = stem.toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-+|-+$/g, "") || "voice";
  await uploadVoice(apiKey(), name, file);
  await listVoices(name);
  find("voice-file").value = "";
  find("options").dispatchEvent(new Event("change", { bubbles: true }));
  await preview();
}

async function attempt(view, button, work) {
  view.error("");
  button.disabled = true;
  try {
    await work(view);
  } catch (error) {
    view.error(inWords(error));
  }
  button.disabled = false;
}
