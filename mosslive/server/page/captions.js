// The words of a spoken reply, shown as they are heard. A transcript has no times of words, so each
// word gets its share of the sound by its letters. Pure: knows neither playback nor page elements.

const LETTER_MS = 65; // of English speech, while the length of the sound is unknown

export class Caption {
  constructor() {
    this.text = "";
    this.spanMs = 0; // the sound that `text` covers; 0: unknown
    this.heardMs = 0;
    this.cutMs = Infinity; // where the sound stopped, if it was interrupted
    this.live = false; // transcripts come while it is spoken
  }

  // The transcript of the first `spanMs`; replaces the one before.
  replace(text, spanMs) {
    this.live = true;
    this.text = text;
    this.spanMs = spanMs;
  }

  append(delta) {
    if (!this.live) this.text += delta;
  }

  get words() {
    return wordsHeard(this.text, this.spanMs, Math.min(this.heardMs, this.cutMs));
  }
}

// The words whose sound has begun by `heardMs`.
export function wordsHeard(text, spanMs, heardMs) {
  if (heardMs === Infinity) return text;
  const words = text.split(/\s+/).filter(Boolean);
  const letters = words.reduce((sum, word) => sum + word.length + 1, 0);
  const each = spanMs ? spanMs / Math.max(1, letters) : LETTER_MS;
  const heard = [];
  let atMs = 0;
  for (const word of words) {
    if (atMs >= heardMs) break;
    heard.push(word);
    atMs += (word.length + 1) * each;
  }
  return heard.join(" ");
}
