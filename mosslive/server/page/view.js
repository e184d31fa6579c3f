// Shows state, messages and timing in the elements of the page. Makes no decisions.

import { STATES } from "./conversation.js";

export const find = (id) => document.getElementById(id);
const ERROR_MS = 12000;

export class View {
  state(name) {
    const words = STATES[name];
    if (find("state").textContent !== words) find("state").textContent = words;
    document.body.dataset.state = name;
    find("interrupt").disabled = !["speaking", "thinking"].includes(name);
  }

  connection(words) {
    find("line").textContent = words;
  }

  // `talking`: the microphone is on.
  talking(talking, busy = false) {
    const button = find("talk");
    button.setAttribute("aria-pressed", String(talking));
    button.setAttribute("aria-busy", String(busy));
    find("talk-label").textContent = busy ? "Cancel" : talking ? "Stop" : "Talk";
    find("mute").disabled = !talking;
  }

  muted(muted) {
    find("mute").setAttribute("aria-pressed", String(muted));
    find("mute").textContent = muted ? "Unmute" : "Mute";
  }

  level(level) {
    find("talk").style.setProperty("--level", Math.sqrt(Math.min(1, level)).toFixed(2));
  }

  said(id, role, words, note) {
    const log = find("log");
    let line = [...log.children].find((one) => one.dataset.item === id);
    if (!line) {
      line = document.createElement("li");
      line.dataset.item = id;
      line.append(element("span", "who"), element("p", "said"), element("p", "note"));
      log.append(line);
    }
    line.className = role;
    const [who, text, detail] = line.children;
    who.textContent = role === "user" ? "You" : "Reply";
    text.textContent = words;
    text.hidden = !words;
    detail.textContent = note;
    detail.hidden = !note;
    log.scrollTop = log.scrollHeight;
  }

  forget() {
    find("log").replaceChildren();
  }

  // Stages of the time to first audio. The detection of the end of speech is not part of it.
  timing(timing) {
    const total = timing.ttfa_s;
    find("no-turn").hidden = true;
    find("times").hidden = false;
    find("ttfa").textContent = total === null ? "–" : milliseconds(total);
    const stages = Object.entries(timing.stages_s);
    const waited = timing.detection_s;
    const shown = waited === null ? stages : [["end of speech detected", waited], ...stages];
    find("bar").replaceChildren(
      ...shown.map(([, took], index) => {
        const part = element("li", waited !== null && index === 0 ? "waiting" : "");
        part.style.flexGrow = String(Math.max(0, 1000 * took));
        return part;
      }),
    );
    const more = [["audio produced", `${timing.audio_s.toFixed(1)} s`]];
    if (timing.rtf !== null) more.push(["real-time factor", timing.rtf.toFixed(2)]);
    if (timing.underruns) more.push(["gaps", String(timing.underruns)]);
    const rows = [...shown.map(([name, took]) => [name, milliseconds(took)]), ...more];
    find("stages").replaceChildren(
      ...rows.map(([name, value]) => {
        const row = element("div");
        row.append(element("dt", "", name), element("dd", "", value));
        return row;
      }),
    );
  }

  error(message) {
    const box = find("error");
    box.textContent = message;
    box.hidden = !message;
    clearTimeout(this.hiding);
    this.hiding = setTimeout(() => (box.hidden = true), ERROR_MS);
  }

  voices({ names, uploads }) {
    find("voice-row").hidden = !uploads && names.length < 2; // there is no choice
    const chosen = find("voice").value;
    const options = names.map((name) => new Option(name, name));
    if (options.length) find("voice").replaceChildren(...options);
    if (names.includes(chosen)) find("voice").value = chosen;
  }

  // Shows the configuration that the server applies; it may differ from the selected one.
  session(session) {
    const kind = session.output_modalities[0];
    document.querySelector(`input[name="reply"][value="${kind}"]`).checked = true;
    if (find("transcript").checked && !session.audio.input.transcription) {
      find("transcript").checked = false;
      this.error("This server does not provide transcripts.");
    }
  }

  askForKey() {
    find("key-row").hidden = false;
    find("key").focus();
  }
}

function element(name, className = "", text = "") {
  const made = document.createElement(name);
  made.className = className;
  made.textContent = text;
  return made;
}

function milliseconds(seconds) {
  return `${Math.round(seconds * 1000)} ms`;
}
