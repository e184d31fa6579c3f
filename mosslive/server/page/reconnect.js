// When and how often a broken connection is made again. Pure.

import { Refused } from "./server.js";

const FIRST_MS = 500;
const MOST_MS = 8000;
const TRIES = 20; // about two minutes
const GOING_AWAY = /shutting down|the server ends/; // it may come back

// Each delay is twice the one before, with chance, so that many pages do not return at once.
export function* delays(chance = Math.random) {
  for (let tries = 0; tries < TRIES; tries++) {
    yield Math.min(MOST_MS, FIRST_MS * 2 ** tries) * (0.75 + 0.5 * chance());
  }
}

// Whether a new connection makes sense after this end. WebRTC has no close codes (0).
export function mayReturn(code, reason) {
  if (code === 1008 || code === 1009 || code === 1000) return false;
  return code !== 0 || !reason || GOING_AWAY.test(reason);
}

// Whether trying again cannot help, as with a wrong key.
export function isFinal(error) {
  return error instanceof Refused && error.status < 500 && error.status !== 429;
}
