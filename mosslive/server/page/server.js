// The server this page came from: addresses, keys, plain requests. Same host only.

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
    // The status has to do.
  }
  throw new Refused(answer.status, message);
}

// The names of the voices, and whether the model can speak with others.
export async function voices(key) {
  const listed = await (await ask("v1/voices", key)).json();
  return { names: listed.data.map((voice) => voice.id), uploads: listed.uploads };
}

export async function iceServers(key) {
  return await (await ask("v1/realtime/ice_servers", key)).json();
}

// A key that may be shown in a socket's handshake: it expires. Without keys there is none to lend.
export async function lentKey(key) {
  if (!key || key.startsWith("ek_")) return key;
  const options = { method: "POST", body: "{}", headers: { "Content-Type": "application/json" } };
  return (await (await ask("v1/realtime/client_secrets", key, options)).json()).value;
}

export function socketAddress() {
  const url = address("v1/realtime?model=default");
  url.protocol = url.protocol === "https:" ? "wss:" : "ws:";
  return url;
}
