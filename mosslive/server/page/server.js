// HTTP requests to the server of this page: URLs, keys, errors. Same host only.

export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

const address = (path) => new URL(path, document.baseURI);

export async function ask(path, key, options = {}) {
  const headers = { ...(key && { Authorization: `Bearer ${key}` }), ...options.headers };
  const answer = await fetch(address(path), { ...options, headers });
  if (answer.ok) return answer;
  let message = `The server answered ${answer.status}.`;
  try {
    message = (await answer.json()).error.message;
  } catch {
    // The body is not our JSON: show the status.
  }
  throw new Refused(answer.status, message);
}

// The names of the voices, and whether the model accepts uploaded voices.
export async function voices(key) {
  const listed = await (await ask("v1/voices", key)).json();
  return { names: listed.data.map((voice) => voice.id), uploads: listed.uploads };
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
