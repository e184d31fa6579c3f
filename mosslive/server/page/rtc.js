// A conversation over WebRTC: audio in media tracks, events over a data channel.

import { ask, iceServers } from "./server.js";

const GATHER_MS = 1500;
const OPEN_MS = 8000;

export class RtcTransport {
  static name = "WebRTC";

  // `on`: event(event), closed(), playing(boolean), output(stream).
  constructor(on) {
    this.on = on;
    this.closed = false;
  }

  async open({ key, session, microphone, sink }) {
    const peer = (this.peer = new RTCPeerConnection(await iceServers(key)));
    for (const track of microphone.getAudioTracks()) peer.addTrack(track, microphone);
    peer.ontrack = ({ track, streams }) => {
      const stream = streams[0] ?? new MediaStream([track]);
      sink.srcObject = stream;
      sink.play().catch(() => {});
      this.on.output(stream);
    };
    peer.onconnectionstatechange = () => {
      if (["failed", "closed"].includes(peer.connectionState)) this.gone();
    };
    this.channel = peer.createDataChannel("oai-events");
    this.channel.onmessage = ({ data }) => this.heard(JSON.parse(data));
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

  send(event) {
    if (this.channel?.readyState === "open") this.channel.send(JSON.stringify(event));
  }

  // The server paces playback, so it knows what was heard.
  interrupt(replying) {
    if (replying) this.send({ type: "response.cancel" });
    this.send({ type: "output_audio_buffer.clear" });
  }

  close() {
    this.closed = true;
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

  heard(event) {
    if (event.type === "output_audio_buffer.started") this.on.playing(true);
    if (/^output_audio_buffer\.(stopped|cleared)$/.test(event.type)) this.on.playing(false);
    this.on.event(event);
  }

  gone() {
    if (!this.closed) {
      this.close();
      this.on.closed("");
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
