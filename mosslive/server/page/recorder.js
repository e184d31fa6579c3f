// Keeps the sound of the conversations of this page, in memory only, to save it as a WAV file.

const WIRE_HZ = 24000;
const MOST = 20 * 60 * 5; // packets of 200 ms: the last 20 minutes, 115 MB

export class Recorder {
  // `begun()` is called once there is something to save.
  constructor(begun) {
    this.begun = begun;
    this.packets = []; // Int16Array, user and reply interleaved
  }

  // Begins to record in this audio context; it ends with the context.
  async begin(context) {
    if (!context.audioWorklet) return; // on an insecure origin
    await context.audioWorklet.addModule(new URL("record-worklet.js", import.meta.url));
    this.node = new AudioWorkletNode(context, "record", { numberOfInputs: 2, numberOfOutputs: 0 });
    this.node.port.onmessage = ({ data }) => {
      if (this.packets.push(data) === 1) this.begun();
      if (this.packets.length > MOST) this.packets.shift();
    };
    for (const [side, source] of Object.entries(this.waiting ?? {})) this.hear(side, source);
    this.waiting = null;
  }

  // `side`: 0 the user, 1 the reply.
  hear(side, source) {
    if (this.node) source.connect(this.node, 0, Number(side));
    else this.waiting = { ...this.waiting, [side]: source };
  }

  end() {
    this.node?.disconnect();
    this.node = this.waiting = null;
  }

  // `both`: the user at the left, the reply at the right; otherwise the reply alone.
  wav(both) {
    return wavFile(both ? this.packets : this.packets.map(replyOf), both ? 2 : 1);
  }
}

function replyOf(packet) {
  return packet.filter((_, index) => index % 2 === 1);
}

export function wavFile(packets, channels) {
  const bytes = packets.reduce((sum, packet) => sum + packet.byteLength, 0);
  const header = new DataView(new ArrayBuffer(44));
  const text = (at, letters) =>
    [...letters].forEach((letter, n) => header.setUint8(at + n, letter.charCodeAt(0)));
  text(0, "RIFF");
  header.setUint32(4, 36 + bytes, true);
  text(8, "WAVEfmt ");
  header.setUint32(16, 16, true);
  header.setUint16(20, 1, true); // PCM
  header.setUint16(22, channels, true);
  header.setUint32(24, WIRE_HZ, true);
  header.setUint32(28, WIRE_HZ * 2 * channels, true);
  header.setUint16(32, 2 * channels, true);
  header.setUint16(34, 16, true);
  text(36, "data");
  header.setUint32(40, bytes, true);
  return new Blob([header, ...packets], { type: "audio/wav" });
}
