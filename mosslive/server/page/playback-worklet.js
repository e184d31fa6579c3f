// Plays replies at 24 kHz, one after the other, and reports how much of each was played.
//
// In:  { item, pcm: Int16Array } · { end: item } the item is complete · { flush: true }
// Out: { started: item } · { heard: item, ms } ten times a second · { stopped: item } ·
//      { flushed: [{ item, samples, whole }] }

import { Resampler } from "./resampler.js";

const WIRE_HZ = 24000;

class Playback extends AudioWorkletProcessor {
  constructor() {
    super();
    this.queue = []; // replies; the first is being played
    this.reported = 0; // frame of the last report
    this.port.onmessage = ({ data }) => this.receive(data);
  }

  receive(data) {
    if (data.flush) {
      const flushed = this.queue.map((one) => ({
        item: one.item,
        samples: Math.floor((one.played * WIRE_HZ) / sampleRate),
        whole: one.ended && !one.pieces.length,
      }));
      this.queue = [];
      this.port.postMessage({ flushed });
    } else if (data.end) {
      const one = this.queue.find(({ item }) => item === data.end);
      if (one) one.ended = true;
    } else {
      this.reply(data.item).push(data.pcm);
    }
  }

  reply(item) {
    let one = this.queue.find((other) => other.item === item);
    if (!one) this.queue.push((one = new Reply(item)));
    return one;
  }

  process(inputs, [[out]]) {
    let filled = 0;
    while (filled < out.length && this.queue.length) {
      const one = this.queue[0];
      const first = one.played === 0;
      filled += one.fill(out, filled);
      if (first && one.played) this.port.postMessage({ started: one.item });
      if (currentFrame - this.reported >= sampleRate / 10) {
        this.reported = currentFrame;
        this.port.postMessage({ heard: one.item, ms: (one.played * 1000) / sampleRate });
      }
      if (one.pieces.length) continue;
      if (!one.ended) break;
      this.queue.shift();
      this.port.postMessage({ stopped: one.item });
    }
    return true;
  }
}

class Reply {
  constructor(item) {
    this.item = item;
    this.pieces = [];
    this.place = 0; // offset in the first piece
    this.played = 0; // samples at the device's rate
    this.ended = false;
    this.resampler = new Resampler(WIRE_HZ, sampleRate);
  }

  push(pcm) {
    const wave = this.resampler.push(Float32Array.from(pcm, (value) => value / 32768));
    if (wave.length) this.pieces.push(wave);
  }

  fill(out, at) {
    let done = 0;
    while (this.pieces.length && at + done < out.length) {
      const piece = this.pieces[0];
      const count = Math.min(piece.length - this.place, out.length - at - done);
      out.set(piece.subarray(this.place, this.place + count), at + done);
      this.place += count;
      done += count;
      if (this.place === piece.length) {
        this.pieces.shift();
        this.place = 0;
      }
    }
    this.played += done;
    return done;
  }
}

registerProcessor("playback", Playback);
