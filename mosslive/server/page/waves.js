// Draws two waveforms, newest at the right: the user's above the centre line, the reply's below.
// With reduced motion it draws one level bar for each instead.

const BAR = 3; // CSS pixels, gap included
const BAR_MS = 40;
const CALM_MS = 250;

export class Waves {
  constructor(canvas) {
    this.canvas = canvas;
    this.analysers = { user: null, reply: null };
    this.peaks = []; // { user, reply }, oldest first
    this.now = { user: 0, reply: 0 }; // peaks of the current bar
    this.since = 0;
    this.calm = matchMedia("(prefers-reduced-motion: reduce)");
    this.dark = matchMedia("(prefers-color-scheme: dark)");
    this.dark.addEventListener("change", () => this.draw());
    new ResizeObserver(() => this.resize()).observe(canvas);
  }

  // Shows the sound of this audio node; null: none.
  hear(who, node, context) {
    const analyser = node && context.createAnalyser();
    if (analyser) {
      analyser.fftSize = 2048;
      node.connect(analyser);
    }
    this.analysers[who] = analyser;
  }

  run(onLevel) {
    this.running = true;
    const frame = (time) => {
      if (!this.running) return;
      for (const who of ["user", "reply"]) {
        this.now[who] = Math.max(this.now[who], peak(this.analysers[who]));
      }
      onLevel(this.now.user, this.now.reply);
      if (time - this.since >= (this.calm.matches ? CALM_MS : BAR_MS)) {
        this.since = time;
        this.peaks.push(this.now);
        this.now = { user: 0, reply: 0 };
        this.peaks.splice(0, this.peaks.length - Math.ceil(this.width / BAR));
        this.draw();
      }
      requestAnimationFrame(frame);
    };
    requestAnimationFrame(frame);
  }

  stop() {
    this.running = false;
    this.peaks = [];
    this.draw();
  }

  resize() {
    const scale = devicePixelRatio || 1;
    this.width = this.canvas.clientWidth;
    this.height = this.canvas.clientHeight;
    this.canvas.width = this.width * scale;
    this.canvas.height = this.height * scale;
    this.canvas.getContext("2d").setTransform(scale, 0, 0, scale, 0, 0);
    this.draw();
  }

  draw() {
    const paint = this.canvas.getContext("2d");
    const style = getComputedStyle(this.canvas);
    const middle = this.height / 2;
    const tall = middle - 2;
    const colour = { user: "--ink", reply: "--accent" };
    paint.clearRect(0, 0, this.width, this.height);
    paint.fillStyle = style.getPropertyValue("--line");
    paint.fillRect(0, middle - 0.5, this.width, 1);
    for (const who of ["user", "reply"]) {
      paint.fillStyle = style.getPropertyValue(colour[who]);
      const size = (one) => Math.sqrt(Math.min(1, one[who])) * tall;
      if (this.calm.matches) {
        const wide = this.peaks.length ? (size(this.peaks.at(-1)) / tall) * this.width : 0;
        paint.fillRect(0, who === "user" ? middle - 14 : middle + 6, wide, 8);
        continue;
      }
      this.peaks.forEach((one, index) => {
        const x = this.width - (this.peaks.length - index) * BAR;
        const high = one[who] < 0.004 ? 0 : Math.max(1, size(one));
        paint.fillRect(x, who === "user" ? middle - 1 - high : middle + 1, BAR - 1, high);
      });
    }
  }
}

function peak(analyser) {
  if (!analyser) return 0;
  const wave = new Float32Array(analyser.fftSize);
  analyser.getFloatTimeDomainData(wave);
  let most = 0;
  for (const sample of wave) most = Math.max(most, Math.abs(sample));
  return most;
}
