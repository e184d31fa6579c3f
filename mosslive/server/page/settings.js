// Reads the controls of the page: the key, the transports and the configuration of a session.

import { find } from "./elements.js";
import { RtcTransport } from "./rtc.js";
import { SocketTransport } from "./socket.js";

const KEY = "mosslive.key"; // in session storage: for this tab only

const instructions = { standard: "", changed: false }; // the server's; whether ours were sent

export function apiKey() {
  return sessionStorage.getItem(KEY) ?? "";
}

export function setApiKey(key) {
  sessionStorage.setItem(KEY, key);
}

export function captions() {
  return find("captions").checked;
}

export function holdsToTalk() {
  return find("turns").value === "push";
}

// `session`: as the server applies it.
export function learnInstructions(session) {
  if (instructions.changed || find("instructions").value.trim()) return;
  instructions.standard = session.instructions;
  find("instructions").placeholder = session.instructions;
}

// Empty: the server's own, which are sent only to replace others.
function wantedInstructions() {
  const own = find("instructions").value.trim();
  instructions.changed ||= Boolean(own);
  const words = own || (instructions.changed ? instructions.standard : "");
  return words ? { instructions: words } : {};
}

export function sessionConfig() {
  const chosen = new FormData(find("options"));
  const transcription = captions() ? { model: "self" } : null;
  const turn_detection = holdsToTalk() ? null : { type: "server_vad" };
  const voice = chosen.get("voice");
  return {
    type: "realtime",
    output_modalities: [chosen.get("reply")],
    ...wantedInstructions(),
    audio: {
      input: { turn_detection, transcription },
      output: voice ? { voice } : {},
    },
    include: ["mosslive.timing", ...(captions() ? ["mosslive.transcript"] : [])],
  };
}

export function chosenTransports(withMicrophone) {
  if (!window.isSecureContext) return [RtcTransport]; // no audio worklets here
  const chosen = find("transport").value;
  const socketOnly = chosen === "websocket" || !withMicrophone || !window.RTCPeerConnection;
  if (socketOnly) return [SocketTransport];
  return chosen === "webrtc" ? [RtcTransport] : [RtcTransport, SocketTransport];
}
