// Errors as sentences: what happened and what to do. Knows no page elements.

import { Refused, Unreachable } from "./server.js";

const TYPE = "You can also type.";
const WHERE = location.host;

// The microphone is not offered: the page came over plain http from another machine.
export class Insecure extends Error {}

export function inWords(error) {
  if (error instanceof Unreachable) {
    return `The server at ${WHERE} does not answer. Check that it runs, then try again.`;
  }
  if (error instanceof Refused) return refusal(error);
  if (error instanceof Insecure) {
    return `Browsers allow the microphone only over https or on localhost. Ask for an https \
address, or open this page on the server's own machine. ${TYPE}`;
  }
  return microphone(error) ?? error.message;
}

function refusal({ status, code, message, retryS }) {
  if (status === 401) {
    const wrong = /required/.test(message) ? "This server needs an API key." : sentence(message);
    return `${wrong} Enter the key and try again.`;
  }
  if (status === 429) {
    const again = `Try again ${retryS > 1 ? `in ${retryS} s` : "in a few seconds"}.`;
    const short = message.length < 80 ? `${sentence(message)} ` : ""; // others explain the load
    return `The server is full. ${short}${/try again/i.test(short) ? "" : again}`.trim();
  }
  if (code === "loading") {
    return "The server is still loading its model. This page says when it is ready.";
  }
  if (code === "shutting_down" || code === "draining") {
    return "The server is shutting down. Try again when it is back.";
  }
  return sentence(message);
}

function microphone({ name }) {
  if (name === "NotAllowedError") {
    return `The browser does not allow the microphone. Allow it in the address bar, then press \
Talk. ${TYPE}`;
  }
  if (name === "NotFoundError") {
    return `No microphone was found. Connect one, then press Talk. ${TYPE}`;
  }
  if (name === "NotReadableError") {
    return `The microphone cannot be opened; another program may use it. Close that program, then \
press Talk. ${TYPE}`;
  }
  return null;
}

// The text of the idle page while the server cannot talk; empty: it can.
export function stateInWords({ state, reason }) {
  if (state === "gone") return `The server at ${WHERE} does not answer. Trying again …`;
  if (state === "loading") return "The server is loading its model …";
  if (state === "draining") return "The server is shutting down.";
  if (state === "failed") return `The server has a problem: ${reason}.`;
  if (state === "overloaded") return `The server has no room at the moment: ${reason}.`;
  return "";
}

export function sentence(text) {
  const begun = text.charAt(0).toUpperCase() + text.slice(1);
  return /[.!?…]$/.test(begun) ? begun : `${begun}.`;
}
