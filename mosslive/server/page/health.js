// Asks the server how it is: on an idle page now and then, during a call often enough that a server
// that is gone is noticed within 5 s, also if its connection still looks open.
// Does not know calls: whoever made it decides what follows.

import { Refused, Unreachable, fetched } from "./server.js";

const IDLE_MS = 5000;
const CALL_MS = 1000;
const ANSWER_MS = 3000;
const AGAIN_MS = 500; // one refusal may be chance

// { state: "ready" | "loading" | "draining" | "failed" | "overloaded" | "gone", reason, full }
// Takes at most `ANSWER_MS`.
export async function health() {
  try {
    const options = { cache: "no-store", signal: AbortSignal.timeout(ANSWER_MS) };
    const answer = await (await fetched("health", options)).json();
    const state = answer.status === "ok" ? "ready" : answer.status;
    return { state, reason: answer.reason ?? "", full: answer.full ?? "" };
  } catch {
    return { state: "gone", reason: "", full: "" };
  }
}

// Why the server refused a WebSocket: browsers do not show its answer.
export async function whyRefused() {
  const { state, reason, full } = await health();
  if (state === "gone") return new Unreachable("no answer");
  if (full) return new Refused(429, "full", full, 0);
  if (state === "ready") return new Refused(403, "", "the server refused the connection", 0);
  return new Refused(503, state, reason || state, 0);
}

export class ServerWatch {
  // `changed(health)` is called for the first answer and for each new state.
  constructor(changed) {
    this.changed = changed;
    this.state = "";
    this.call = null; // { signs, gone } of the current call
    this.round = 0;
    document.addEventListener("visibilitychange", () => !document.hidden && this.look());
    this.look();
  }

  // During a call. `signs()`: a number that grows while the server sends; `gone()`: it has left.
  follow(signs, gone) {
    this.call = { signs, gone };
    this.look();
  }

  unfollow() {
    this.call = null;
  }

  async look() {
    const round = ++this.round; // ends the loop before
    while (round === this.round) {
      const { call } = this;
      const seen = call ? await this.watchCall(call) : await health();
      if (round !== this.round) return;
      const lost = seen.state === "gone" && call;
      if (lost && call === this.call) call.gone();
      if (!lost && seen.state !== this.state) {
        this.state = seen.state;
        this.changed(seen);
      }
      await pause(this.call ? CALL_MS : document.hidden ? 4 * IDLE_MS : IDLE_MS);
    }
  }

  // Asks a second time if the first failed at once, so both take `ANSWER_MS` and a little at most.
  async watchCall(call) {
    const began = performance.now();
    const before = await call.signs();
    let seen = await health();
    if (seen.state === "gone" && performance.now() - began < ANSWER_MS / 2) {
      await pause(AGAIN_MS);
      seen = await health();
    }
    const alive = (await call.signs()) > before;
    return seen.state === "gone" && alive ? { ...seen, state: this.state } : seen;
  }
}

export function pause(ms) {
  return new Promise((resume) => setTimeout(resume, ms));
}
