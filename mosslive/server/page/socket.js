// A conversation over a WebSocket: audio as events both ways, through two audio worklets.

import { whyRefused } from "./health.js";
import { Unreachable, ephemeralKey, socketAddress } from "./server.js";

const WIRE_HZ = 24000;
const OPEN_MS = 10000;

export class SocketTransport {
  static name = "WebSocket";

  // `on`: event(event), sent(event), closed(code, reason), playing(boolean), heard(item, ms),
  // output(node).
  constructor(on) {
    this.on = on;
    this.closed = false;
    this.received = 0;
    this.item = null; // item being received
    this.dropped = null; // last interrupted item: its remaining audio is not played
  }

  async open({ key, session, microphone, context }) {
    await loadWorklets(context);
    this.context = context;
    this.player = new AudioWorkletNode(context, "playback", {
      numberOfInputs: 0,
      outputChannelCount: [1],
    });
    this.player.port.onmessage = ({ data }) => this.played(data);
    this.player.connect(context.destination);
    this.on.output(this.player);
    const ephemeral = await ephemeralKey(key);
    const names = ["realtime", ...(ephemeral ? [`openai-insecure-api-key.${ephemeral}`] : [])];
    this.socket = new WebSocket(socketAddress(), names);
    await this.opened();
    this.socket.onclose = ({ code, reason }) => this.gone(code, reason);
    this.socket.onmessage = ({ data }) => this.take(JSON.parse(data));
    this.send({ type: "session.update", session });
    if (microphone) this.listen(microphone);
  }

  // Also later: when a text conversation continues by voice, or with another microphone.
  listen(microphone) {
    this.source?.disconnect();
    this.source = this.context.createMediaStreamSource(microphone);
    this.capture ??= this.makeCapture();
    this.source.connect(this.capture);
  }

  makeCapture() {
    const capture = new AudioWorkletNode(this.context, "capture", { numberOfOutputs: 0 });
    capture.port.onmessage = ({ data }) =>
      this.send({ type: "input_audio_buffer.append", audio: toBase64(data) });
    return capture;
  }

  // False: it is not open, nothing is sent.
  send(event) {
    if (this.socket?.readyState !== WebSocket.OPEN) return false;
    this.socket.send(JSON.stringify(event));
    this.on.sent(event);
    return true;
  }

  interrupt(replying) {
    if (replying) this.send({ type: "response.cancel" });
    this.flush();
  }

  flush() {
    this.dropped = this.item;
    this.player.port.postMessage({ flush: true });
  }

  // Grows while the server sends.
  async signs() {
    return this.received;
  }

  close() {
    this.closed = true;
    this.source?.disconnect();
    this.capture?.port.close();
    if (this.player) this.player.port.onmessage = null;
    this.player?.disconnect();
    this.socket?.close(1000);
  }

  opened() {
    return new Promise((resolve, reject) => {
      const fail = () => whyRefused().then(reject);
      this.socket.onopen = resolve;
      this.socket.onclose = fail;
      setTimeout(fail, OPEN_MS);
    });
  }

  take(event) {
    if (this.closed) return;
    this.received += 1;
    if (event.type === "response.output_audio.delta") {
      if (event.item_id === this.dropped) return;
      this.item = event.item_id;
      const pcm = fromBase64(event.delta);
      this.player.port.postMessage({ item: event.item_id, pcm }, [pcm.buffer]);
      return;
    }
    if (event.type === "response.output_audio.done") {
      this.player.port.postMessage({ end: event.item_id });
    } else if (event.type === "input_audio_buffer.speech_started") {
      this.flush();
    }
    this.on.event(event);
  }

  // The client plays, so it reports to the server what was heard.
  played(data) {
    if (data.started) this.on.playing(true);
    if (data.heard) this.on.heard(data.heard, data.ms);
    if (data.stopped) {
      this.on.heard(data.stopped, Infinity);
      this.on.playing(false);
    }
    for (const { item, samples, whole } of data.flushed ?? []) {
      this.on.playing(false);
      if (whole) continue;
      this.send({
        type: "conversation.item.truncate",
        item_id: item,
        content_index: 0,
        audio_end_ms: Math.floor((samples * 1000) / WIRE_HZ),
      });
    }
  }

  gone(code, reason) {
    if (!this.closed) {
      this.close();
      this.on.closed(code, reason);
    }
  }
}

async function loadWorklets({ audioWorklet }) {
  try {
    await audioWorklet.addModule(new URL("playback-worklet.js", import.meta.url));
    await audioWorklet.addModule(new URL("capture-worklet.js", import.meta.url));
  } catch {
    throw new Unreachable("the worklets cannot be loaded");
  }
}

function toBase64(buffer) {
  return btoa(String.fromCharCode(...new Uint8Array(buffer)));
}

function fromBase64(text) {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  return new Int16Array(bytes.buffer);
}
