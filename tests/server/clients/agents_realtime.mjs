// npm `@openai/agents-realtime` has two spoken turns; the second interrupts the first reply.
// Runs next to its node_modules. Arguments: PORT, a file of 24 kHz PCM. Prints JSON.
import { readFileSync } from "node:fs";
import { OpenAIRealtimeWebSocket, RealtimeAgent, RealtimeSession } from "@openai/agents-realtime";

const PACKET = 2400; // bytes: 50 ms
const [port, file] = process.argv.slice(2);
const turn = readFileSync(file);
const url = `ws://127.0.0.1:${port}/v1/realtime?model=moss`;

const agent = new RealtimeAgent({ name: "Anna", instructions: "Be short." });
const session = new RealtimeSession(agent, {
  model: "moss",
  transport: new OpenAIRealtimeWebSocket({ url }),
});

function say() {
  for (let first = 0; first < turn.length; first += PACKET) {
    const piece = turn.subarray(first, first + PACKET);
    session.sendAudio(piece.buffer.slice(piece.byteOffset, piece.byteOffset + piece.length));
  }
}

const seen = { replies: [], interrupted: 0, audio: 0, errors: [] };
const over = new Promise((resolve) => {
  session.on("audio", (event) => {
    if (seen.audio === 0) say();
    seen.audio += event.data.byteLength;
  });
  session.on("audio_interrupted", () => (seen.interrupted += 1));
  session.on("error", (event) => seen.errors.push(JSON.stringify(event)));
  session.on("transport_event", (event) => {
    if (event.type !== "response.done") return;
    seen.replies.push(event.response.status);
    if (seen.replies.length === 2) resolve();
  });
});
await session.connect({ apiKey: "unused", url });
say();
await over;
session.close();
console.log(JSON.stringify(seen));
