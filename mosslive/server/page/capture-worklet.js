// Converts the microphone, at the device's rate, to packets of 40 ms: 24 kHz, int16.

import { Resampler } from "./resampler.js";

const WIRE_HZ = 24000;
const PACKET = 960;

class Capture extends AudioWorkletProcessor {
  constructor() {
    super();
    this.resampler = new Resampler(sampleRate, WIRE_HZ);
    this.packet = new Int16Array(PACKET);
    this.filled = 0;
  }

  process([channels]) {
    if (!channels.length) return true;
    for (const sample of this.resampler.push(channels[0])) {
      this.packet[this.filled++] = Math.max(-1, Math.min(1, sample)) * 32767;
      if (this.filled === PACKET) {
        this.port.postMessage(this.packet.buffer, [this.packet.buffer]);
        this.packet = new Int16Array(PACKET);
        this.filled = 0;
      }
    }
    return true;
  }
}

registerProcessor("capture", Capture);
