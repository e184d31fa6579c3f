// The latency of the last turn in words, and as a bar of its stages. Makes no decisions.

import { element, find } from "./elements.js";

// The words of the page for stages of the timing record.
const STAGES = { "encoder finish": "encoder", "rows in": "prompt", "hand out": "send" };

// "0.86 s after you stopped speaking: 0.52 turn detection + 0.34 first sound"
export function sentence({ detection_s, ttfa_s }) {
  if (ttfa_s === null) return "";
  if (detection_s === null) return `${digits(ttfa_s)} s to first sound`;
  const total = digits(Number(digits(detection_s)) + Number(digits(ttfa_s))); // as printed
  return `${total} s after you stopped speaking: ${digits(detection_s)} turn detection + \
${digits(ttfa_s)} first sound`;
}

export function showTiming(timing) {
  const words = sentence(timing);
  if (!words) return; // a reply in text
  const [, total, rest] = words.match(/^([\d.]+ s)(.*)$/);
  find("latency").replaceChildren(element("strong", "", total), rest);
  const named = ([name, took]) => [STAGES[name] ?? name, took];
  const stages = Object.entries(timing.stages_s).map(named);
  const waited = timing.detection_s;
  const shown = waited === null ? stages : [["turn detection", waited], ...stages];
  find("bar").replaceChildren(
    ...shown.map(([name, took]) => {
      const part = element("li", name === "turn detection" ? "waiting" : "");
      part.style.flexGrow = String(Math.max(0, 1000 * took));
      return part;
    }),
  );
  const more = [["sound produced", `${timing.audio_s.toFixed(1)} s`]];
  if (timing.rtf !== null) more.push(["real-time factor", timing.rtf.toFixed(2)]);
  if (timing.underruns) more.push(["gaps", String(timing.underruns)]);
  const rows = [...shown.map(([name, took]) => [name, `${Math.round(took * 1000)} ms`]), ...more];
  find("stages").replaceChildren(
    ...rows.map(([name, value]) => {
      const row = element("div");
      row.append(element("dt", "", name), element("dd", "", value));
      return row;
    }),
  );
  find("turn").hidden = false;
}

function digits(seconds) {
  return seconds.toFixed(2);
}
