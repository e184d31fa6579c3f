// Microphones and speakers: opens the chosen one, lists them, shows the level before a call.

import { find } from "./elements.js";
import { Insecure } from "./errors.js";

const WATCH_MS = 100;
const SILENT_MS = 10000; // a room is never so quiet that every sample is zero

export async function openMicrophone() {
  if (!navigator.mediaDevices) throw new Insecure("the microphone is not offered");
  const id = find("microphone").value;
  const audio = { echoCancellation: true, noiseSuppression: true, autoGainControl: true };
  try {
    return await navigator.mediaDevices.getUserMedia({
      audio: { ...audio, ...(id && { deviceId: { exact: id } }) },
    });
  } catch (error) {
    if (error.name !== "OverconstrainedError") throw error;
    find("microphone").value = ""; // the chosen one was unplugged
    return await navigator.mediaDevices.getUserMedia({ audio });
  } finally {
    listDevices(); // browsers tell names only now
  }
}

// Fills both lists. Before the first permission browsers tell no names.
export async function listDevices() {
  const devices = (await navigator.mediaDevices?.enumerateDevices()) ?? [];
  fill(find("microphone"), devices, "audioinput");
  fill(find("speaker"), devices, "audiooutput");
  const choice = "setSinkId" in HTMLMediaElement.prototype;
  find("speaker-row").hidden = !choice || find("speaker").options.length < 2;
}

function fill(select, devices, kind) {
  const chosen = select.value;
  const named = devices.filter(
    (one) => one.kind === kind && one.label && !["", "default"].includes(one.deviceId),
  );
  const options = named.map((one) => new Option(one.label, one.deviceId));
  select.replaceChildren(new Option("System default", ""), ...options);
  if (named.some((one) => one.deviceId === chosen)) select.value = chosen;
}

// Sends the sound of a call to the chosen speaker, where the browser can.
export async function useSpeaker(sink, context) {
  const id = find("speaker").value;
  await sink.setSinkId?.(id);
  await context?.setSinkId?.(id);
}

// Shows the level of the microphone before a call. Off: gives it back.
export class MicrophoneCheck {
  get on() {
    return Boolean(this.stream);
  }

  async start() {
    this.stream = await openMicrophone();
    this.context = new AudioContext();
    const analyser = this.context.createAnalyser();
    this.context.createMediaStreamSource(this.stream).connect(analyser);
    const wave = new Float32Array(analyser.fftSize);
    this.timer = setInterval(() => {
      analyser.getFloatTimeDomainData(wave);
      const peak = wave.reduce((most, sample) => Math.max(most, Math.abs(sample)), 0);
      find("level").value = Math.sqrt(Math.min(1, peak));
    }, WATCH_MS);
    this.show();
  }

  stop() {
    clearInterval(this.timer);
    for (const track of this.stream?.getTracks() ?? []) track.stop();
    this.context?.close();
    this.stream = this.context = null;
    find("level").value = 0;
    this.show();
  }

  show() {
    find("check").textContent = this.on ? "Stop the check" : "Check microphone";
    find("check").setAttribute("aria-pressed", String(this.on));
    find("level").hidden = !this.on;
  }
}

// Notices a microphone that gives no sound at all, as one that is muted by a switch does.
export class SilenceWatch {
  constructor(silent) {
    this.silent = silent; // called with true once it is silent, with false when it is not any more
    this.restart();
  }

  restart() {
    this.heard = performance.now();
    if (this.told) this.silent((this.told = false));
  }

  level(level) {
    if (level > 0) this.restart();
    else if (!this.told && performance.now() - this.heard > SILENT_MS) {
      this.silent((this.told = true));
    }
  }
}
