// A conversation over WebRTC: the browser carries the sound, events go over a data channel.

import { ask, iceServers } from "./server.js";

const GATHER_MS = 1500;
const OPEN_MS = 8000;

export class RtcLine {
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
      setTimeout(() => reject(new Error("No connection came about.")), OPEN_MS);
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
    this.send({ type: "session.update", session }); // its answer shows what is in force
  }

  send(event) {
    if (this.channel?.readyState === "open") this.channel.send(JSON.stringify(event));
  }

  // The server plays, so it knows what was heard.
  interrupt(replying) {
    if (replying) this.send({ type: "response.cancel" });
    this.send({ type: "output_audio_buffer.clear" });
  }

  close() {
    this.closed = true;
    // First the goodbye, then the line: a call whose line is gone has ended, and knows no hang-up.
    const waited = new Promise((resume) => setTimeout(resume, 1000));
    Promise.race([this.hangUp(), waited]).then(() => {
      this.channel?.close();
      this.peer?.close();
    });
  }

  // A page that goes away cannot say goodbye over the line; the server would wait half a minute.
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
