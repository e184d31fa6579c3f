// Asks the server how it is: on an idle page now and then, during a call often enough that a server
// that is gone is noticed within 5 s, also if its connection still looks open.
// Does not know calls: whoever made it decides what follows.

import { Refused, Unreachable, fetched } from "./server.js";

const IDLE_MS = 5000;
const CALL_MS = 1500;
const ANSWER_MS = 2500;
const AGAIN_MS = 500; // one failure may be chance

// { state: "ready" | "loading" | "draining" | "failed" | "overloaded" | "gone", reason, full }
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
      const before = call ? await call.signs() : 0;
      let seen = await health();
      if (seen.state === "gone" && call) {
        await pause(AGAIN_MS);
        const alive = (await call.signs()) > before;
        seen = alive ? seen : await health();
        if (round !== this.round) return;
        if (seen.state === "gone" && !alive && call === this.call) call.gone();
      }
      if (round !== this.round) return;
      if (seen.state !== this.state && !(seen.state === "gone" && this.call)) {
        this.state = seen.state;
        this.changed(seen);
      }
      await pause(this.call ? CALL_MS : document.hidden ? 4 * IDLE_MS : IDLE_MS);
    }
  }
}

export function pause(ms) {
  return new Promise((resume) => setTimeout(resume, ms));
}
