// Records both sides in step: input 0 is the user, input 1 the reply; an input without sound is
// silence. Posts packets of 200 ms: 24 kHz, int16, user and reply interleaved.

import { Resampler } from "./resampler.js";

const WIRE_HZ = 24000;
const PACKET = 4800; // sample pairs
const SILENCE = new Float32Array(128);

class Record extends AudioWorkletProcessor {
  constructor() {
    super();
    this.resamplers = [0, 1].map(() => new Resampler(sampleRate, WIRE_HZ));
    this.packet = new Int16Array(2 * PACKET);
    this.filled = 0;
  }

  process(inputs) {
    const sides = this.resamplers.map((one, side) => one.push(inputs[side]?.[0] ?? SILENCE));
    for (let n = 0; n < sides[0].length; n++) {
      for (const side of sides) {
        this.packet[this.filled++] = Math.max(-1, Math.min(1, side[n])) * 32767;
      }
      if (this.filled < 2 * PACKET) continue;
      this.port.postMessage(this.packet, [this.packet.buffer]);
      this.packet = new Int16Array(2 * PACKET);
      this.filled = 0;
    }
    return true;
  }
}

registerProcessor("record", Record);
