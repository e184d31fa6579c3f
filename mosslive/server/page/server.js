// HTTP requests to the server of this page: URLs, keys, errors. Same host only.

// The server answered with an error.
export class Refused extends Error {
  constructor(status, code, message, retryS) {
    super(message);
    Object.assign(this, { status, code, retryS });
  }
}

// The server did not answer.
export class Unreachable extends Error {}

const address = (path) => new URL(path, document.baseURI);

// Any answer, also an error. Raises `Unreachable`.
export async function fetched(path, options = {}) {
  try {
    return await fetch(address(path), options);
  } catch {
    throw new Unreachable("no answer");
  }
}

export async function ask(path, key, options = {}) {
  const headers = { ...(key && { Authorization: `Bearer ${key}` }), ...options.headers };
  const answer = await fetched(path, { ...options, headers });
  if (answer.ok) return answer;
  const { code, message } = await errorOf(answer);
  throw new Refused(answer.status, code, message, Number(answer.headers.get("retry-after")) || 0);
}

async function errorOf(answer) {
  try {
    return (await answer.json()).error;
  } catch {
    return { code: "", message: `the server answered ${answer.status}` }; // not our JSON
  }
}

// The served model: its name, and in `capabilities` what it was trained for.
export async function modelInfo(key) {
  return (await (await ask("v1/models", key)).json()).data[0];
}

// { version, bundled }: of the server; whether it serves the model that ships with it.
export async function version() {
  return await (await ask("version")).json();
}

// The names of the voices, and whether the model accepts uploaded voices.
export async function voices(key) {
  const listed = await (await ask("v1/voices", key)).json();
  return { names: listed.data.map((voice) => voice.id), uploads: listed.uploads };
}

export async function uploadVoice(key, name, file) {
  const body = new FormData();
  body.set("name", name);
  body.set("file", file);
  await ask("v1/voices", key, { method: "POST", body });
}

// A WAV file of this text in this voice.
export async function speech(key, voice, input) {
  const body = JSON.stringify({ input, voice, response_format: "wav" });
  const headers = { "Content-Type": "application/json" };
  return await (await ask("v1/audio/speech", key, { method: "POST", body, headers })).blob();
}

export async function iceServers(key) {
  return await (await ask("v1/realtime/ice_servers", key)).json();
}

// An ephemeral key for a WebSocket handshake, where it is visible. Without a key none is needed.
export async function ephemeralKey(key) {
  if (!key || key.startsWith("ek_")) return key;
  const options = { method: "POST", body: "{}", headers: { "Content-Type": "application/json" } };
  return (await (await ask("v1/realtime/client_secrets", key, options)).json()).value;
}

export function socketAddress() {
  const url = address("v1/realtime?model=default");
  url.protocol = url.protocol === "https:" ? "wss:" : "ws:";
  return url;
}
