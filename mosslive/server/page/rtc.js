// A conversation over WebRTC: audio in media tracks, events over a data channel. Without a
// microphone it only receives sound; that also works where browsers offer no microphone.

import { ask, iceServers } from "./server.js";

const GATHER_MS = 1500;
const OPEN_MS = 8000;
const DISCONNECTED_MS = 3000; // a short break heals by itself
const HEARD_MS = 100; // how often playback is reported
const DELAY_MS = 150; // from the server's track to the ear

export class RtcTransport {
  static name = "WebRTC";

  // `on`: event(event), sent(event), closed(code, reason), playing(boolean), heard(item, ms),
  // output(stream).
  constructor(on) {
    this.on = on;
    this.closed = false;
    this.itemOf = new Map(); // response id → item id
  }

  async open({ key, session, microphone, sink }) {
    const peer = (this.peer = new RTCPeerConnection(await iceServers(key)));
    if (microphone) {
      const [track] = microphone.getAudioTracks();
      this.sender = peer.addTrack(track, microphone);
    } else {
      peer.addTransceiver("audio", { direction: "recvonly" });
    }
    peer.ontrack = ({ track, streams }) => {
      const stream = streams[0] ?? new MediaStream([track]);
      sink.srcObject = stream;
      sink.play().catch(() => {});
      this.on.output(stream);
    };
    peer.onconnectionstatechange = () => this.connectionChanged(peer);
    this.channel = peer.createDataChannel("oai-events");
    this.channel.onmessage = ({ data }) => this.take(JSON.parse(data));
    const opened = new Promise((resolve, reject) => {
      this.channel.onopen = resolve;
      setTimeout(() => reject(new Error("The WebRTC connection timed out.")), OPEN_MS);
    });
    opened.catch(() => {});
    await peer.setLocalDescription(await peer.createOffer());
    await gathered(peer);
    const body = new FormData();
    body.set("sdp", new Blob([peer.localDescription.sdp], { type: "application/sdp" }));
    body.set("session", new Blob([JSON.stringify(session)], { type: "application/json" }));
    const answer = await ask("v1/realtime/calls", key, { method: "POST", body });
    this.call = answer.headers.get("location")?.split("/").at(-1);
    this.key = key;
    await peer.setRemoteDescription({ type: "answer", sdp: await answer.text() });
    await opened;
    this.channel.onclose = () => this.gone();
    this.send({ type: "session.update", session }); // the answer shows what is applied
  }

  // Another microphone.
  listen(microphone) {
    this.sender?.replaceTrack(microphone.getAudioTracks()[0]);
  }

  // False: it is not open, nothing is sent.
  send(event) {
    if (this.channel?.readyState !== "open") return false;
    this.channel.send(JSON.stringify(event));
    this.on.sent(event);
    return true;
  }

  // The server paces playback, so it knows what was heard.
  interrupt(replying) {
    if (replying) this.send({ type: "response.cancel" });
    this.send({ type: "output_audio_buffer.clear" });
  }

  // Grows while the server sends: its track never pauses.
  async signs() {
    let packets = 0;
    const stats = (await this.peer?.getStats()) ?? [];
    stats.forEach((one) => (packets += (one.type === "inbound-rtp" && one.packetsReceived) || 0));
    return packets;
  }

  close() {
    this.closed = true;
    this.silence();
    // Hang up before closing: the server answers 404 for a call whose connection is gone.
    const waited = new Promise((resume) => setTimeout(resume, 1000));
    Promise.race([this.hangUp(), waited]).then(() => {
      this.channel?.close();
      this.peer?.close();
    });
  }

  // A page that unloads cannot close the connection cleanly; the server would wait 30 s.
  hangUp() {
    if (!this.call) return Promise.resolve();
    const path = `v1/realtime/calls/${this.call}/hangup`;
    this.call = null;
    return ask(path, this.key, { method: "POST", keepalive: true }).catch(() => {});
  }

  take(event) {
    if (this.closed) return;
    if (event.type === "response.output_item.added") {
      this.itemOf.set(event.response_id, event.item.id);
    } else if (event.type === "output_audio_buffer.started") {
      this.sound(this.itemOf.get(event.response_id));
    } else if (/^output_audio_buffer\.(stopped|cleared)$/.test(event.type)) {
      this.silence();
      if (event.type.endsWith("stopped")) {
        this.on.heard(this.itemOf.get(event.response_id), Infinity);
      }
      this.on.playing(false);
    }
    this.on.event(event);
  }

  sound(item) {
    const began = performance.now() + DELAY_MS;
    this.silence();
    this.clock = setInterval(() => {
      this.on.heard(item, Math.max(0, performance.now() - began));
    }, HEARD_MS);
    this.on.playing(true);
  }

  silence() {
    clearInterval(this.clock);
  }

  connectionChanged(peer) {
    clearTimeout(this.broken);
    const state = peer.connectionState;
    if (["failed", "closed"].includes(state)) this.gone();
    if (state === "disconnected") this.broken = setTimeout(() => this.gone(), DISCONNECTED_MS);
  }

  gone() {
    if (!this.closed) {
      this.close();
      this.on.closed(0, "");
    }
  }
}

function gathered(peer) {
  if (peer.iceGatheringState === "complete") return Promise.resolve();
  return new Promise((resolve) => {
    setTimeout(resolve, GATHER_MS);
    peer.onicegatheringstatechange = () => peer.iceGatheringState === "complete" && resolve();
  });
}
