// Streaming resampler: a windowed sinc, read from a table.
// The output does not depend on how the input is divided. Does not know the audio API.

const ZEROS = 12; // zero crossings of the sinc on each side
const STEPS = 256; // table entries per input sample

export class Resampler {
  constructor(fromHz, toHz) {
    this.step = fromHz / toHz;
    const cutoff = 0.95 * Math.min(1, toHz / fromHz);
    this.reach = Math.ceil(ZEROS / cutoff);
    this.table = makeTable(cutoff, this.reach);
    this.held = new Float32Array(this.reach); // silence before the first sample
    this.at = this.reach; // position of the next output sample in `held`
  }

  push(wave) {
    const held = new Float32Array(this.held.length + wave.length);
    held.set(this.held);
    held.set(wave, this.held.length);
    const ready = held.length - this.reach - 1 - this.at;
    const out = new Float32Array(Math.max(0, Math.ceil(ready / this.step)));
    for (let n = 0; n < out.length; n++) out[n] = this.sample(held, this.at + n * this.step);
    this.at += out.length * this.step;
    const gone = Math.max(0, Math.floor(this.at) - this.reach);
    this.held = held.slice(gone);
    this.at -= gone;
    return out;
  }

  sample(held, at) {
    const { table, reach } = this;
    const centre = Math.floor(at);
    let sum = 0;
    for (let k = centre - reach + 1; k <= centre + reach; k++) {
      const place = Math.abs(at - k) * STEPS;
      const index = Math.floor(place);
      const between = place - index;
      sum += held[k] * (table[index] * (1 - between) + table[index + 1] * between);
    }
    return sum;
  }
}

function makeTable(cutoff, reach) {
  const table = new Float32Array(reach * STEPS + 2);
  for (let i = 0; i < reach * STEPS; i++) {
    const x = i / STEPS;
    const sinc = x === 0 ? 1 : Math.sin(Math.PI * cutoff * x) / (Math.PI * cutoff * x);
    table[i] = cutoff * sinc * (0.5 + 0.5 * Math.cos((Math.PI * x) / reach));
  }
  return table;
}
