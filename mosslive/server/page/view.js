// Shows the state of the page and of a call in its elements. Makes no decisions.

import { find } from "./elements.js";
import { showTiming } from "./latency.js";
import { holdsToTalk, learnInstructions } from "./settings.js";

const STATES = {
  off: "Press the button and talk.",
  microphone: "Please allow the microphone.",
  connecting: "Connecting …",
  reconnecting: "Reconnecting …",
  listening: "Listening.",
  writing: "Connected. Type, or press to talk.",
  holding: "Hold the button or the space bar, and speak.",
  muted: "Muted. The model does not hear you.",
  hearing: "You are speaking.",
  thinking: "One moment …",
  speaking: "Replying. Speak to interrupt.",
};

const TEXT_WAITS = "Not connected yet. Your text stays in the field; send it once connected.";

export class View {
  constructor(log) {
    this.log = log;
    this.idle = ""; // why no call can begin ...
    this.waits = false; // ... and whether the button does not work meanwhile
    find("error-close").addEventListener("click", () => this.error(""));
    this.ended();
  }

  state(name) {
    this.name = name;
    let words = STATES[name];
    if (name === "off" && this.idle) words = this.idle;
    if (name === "speaking" && holdsToTalk()) words = "Replying. Hold the button to interrupt.";
    if (find("state").textContent !== words) find("state").textContent = words;
    document.body.dataset.state = name;
    find("interrupt").disabled = !["speaking", "thinking"].includes(name);
  }

  // Why no call can begin now; empty: one can. `wait`: the button does not work meanwhile.
  setIdle(words, wait = false) {
    this.idle = words;
    this.waits = wait;
    if (this.mode !== "off") return;
    this.call("off");
    this.state("off");
  }

  connection(words) {
    find("line").textContent = words;
  }

  server(model, title) {
    find("server").textContent = `${model} · ${location.host}`;
    find("server").title = title;
  }

  // `mode`: off, connecting, talking (with a microphone), writing (without).
  call(mode) {
    this.mode = document.body.dataset.call = mode;
    const push = mode === "talking" && holdsToTalk();
    const labels = { off: "Talk", connecting: "Cancel", talking: "Mute", writing: "Talk" };
    find("talk-label").textContent = push ? "Hold to talk" : labels[mode];
    find("talk").setAttribute("aria-busy", String(mode === "connecting"));
    find("talk").disabled = mode === "off" && this.waits;
    find("talk").removeAttribute("aria-pressed");
    find("hang-up").disabled = mode === "off";
    find("before").hidden = mode !== "off";
    find("pair").hidden = mode === "off";
  }

  muted(muted) {
    if (this.mode !== "talking") return;
    this.call("talking");
    if (!muted) return;
    find("talk").setAttribute("aria-pressed", "true");
    find("talk-label").textContent = "Unmute";
  }

  ended() {
    this.level(0);
    this.hint("");
    this.call("off");
    this.connection("Not connected");
    this.state("off");
  }

  level(level) {
    find("talk").style.setProperty("--level", Math.sqrt(Math.min(1, level)).toFixed(2));
  }

  said(id, role, words, note) {
    this.log.said(id, role, words, note);
  }

  timing(timing) {
    showTiming(timing);
  }

  // Stays until it is closed, or until the next attempt.
  error(message) {
    find("error").hidden = !message;
    find("error-text").textContent = message;
  }

  hint(words) {
    find("hint").textContent = words;
    find("hint").hidden = !words;
  }

  // Whether text that the user wanted to send is still in its field.
  textWaits(waits) {
    if (waits) this.hint(TEXT_WAITS);
    else if (find("hint").textContent === TEXT_WAITS) this.hint("");
  }

  // A call has begun.
  begun() {
    this.log.begin();
    if (find("captions").disabled) this.tellNoCaptions();
  }

  // Shows the configuration that the server applies; it may differ from the selected one.
  session(session) {
    const kind = session.output_modalities[0];
    document.querySelector(`input[name="reply"][value="${kind}"]`).checked = true;
    learnInstructions(session);
    if (!find("captions").checked || session.audio.input.transcription) return;
    this.noCaptions();
    this.tellNoCaptions();
  }

  // The model writes no transcripts.
  noCaptions() {
    find("captions").checked = false;
    find("captions").disabled = true;
    find("no-captions").hidden = false;
  }

  // Once.
  tellNoCaptions() {
    if (!this.told) this.log.note(find("no-captions").textContent.replace(/\s+/g, " "));
    this.told = true;
  }

  askForKey() {
    find("key-form").hidden = false;
    find("key").focus();
  }
}
