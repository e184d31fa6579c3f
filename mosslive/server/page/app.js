// Connects the controls of the page to a conversation, over WebRTC or a WebSocket.

import { Conversation } from "./conversation.js";
import { RtcTransport } from "./rtc.js";
import { Refused, voices } from "./server.js";
import { SocketTransport } from "./socket.js";
import { View, find } from "./view.js";
import { Waves } from "./waves.js";

const KEY = "mosslive.key"; // in session storage: for this tab only

const view = new View();
const waves = new Waves(find("waves"));
let talk = null; // the current conversation

class Held {
  constructor() {
    this.conversation = new Conversation(view);
    this.over = false;
    // Created and resumed inside a click: phones allow sound only then.
    this.context = new AudioContext({ latencyHint: "interactive" });
    this.context.resume();
    find("sink").play().catch(() => {});
    if (navigator.audioSession) navigator.audioSession.type = "play-and-record";
  }

  async begin(withMicrophone) {
    view.talking(withMicrophone, true);
    if (withMicrophone) await this.takeMicrophone();
    this.alive();
    this.conversation.listens = withMicrophone;
    view.state("connecting");
    await this.connect(chosenTransports(withMicrophone));
    this.alive();
    view.connection(`Connected over ${this.transport.constructor.name}`);
    view.talking(withMicrophone);
    this.conversation.show();
    waves.run((level) => view.level(level));
  }

  // Adds the microphone to a conversation that began with text.
  async addMicrophone() {
    view.talking(true, true);
    await this.takeMicrophone();
    this.alive();
    this.transport.listen(this.microphone);
    this.conversation.listens = true;
    view.talking(true);
    this.conversation.show();
  }

  async takeMicrophone() {
    if (!navigator.mediaDevices) {
      throw new Error("The microphone needs https or localhost. You can still type.");
    }
    view.state("microphone");
    const audio = { echoCancellation: true, noiseSuppression: true, autoGainControl: true };
    this.microphone = await navigator.mediaDevices.getUserMedia({ audio });
    const source = this.context.createMediaStreamSource(this.microphone);
    waves.hear("user", source, this.context);
    const [track] = this.microphone.getAudioTracks();
    track.onended = () => this.fail("The microphone was disconnected.");
    navigator.wakeLock?.request("screen").then(
      (lock) => (this.over ? lock.release() : (this.lock = lock)),
      () => {},
    );
  }

  async connect(transports) {
    for (const [index, Transport] of transports.entries()) {
      const transport = new Transport({
        event: (event) => this.conversation.take(event),
        playing: (playing) => this.conversation.setPlaying(playing),
        output: (output) => this.showOutput(output),
        closed: (reason) => this.closed(reason || this.conversation.ended),
      });
      this.transport = transport;
      try {
        await transport.open({
          key: key(),
          session: wanted(),
          microphone: this.microphone ?? null,
          context: this.context,
          sink: find("sink"),
        });
        return;
      } catch (error) {
        transport.close();
        const final = error instanceof Refused && error.status < 500 && error.status !== 404;
        if (this.over || final || index + 1 === transports.length) throw error;
      }
    }
  }

  showOutput(output) {
    const node =
      output instanceof MediaStream ? this.context.createMediaStreamSource(output) : output;
    waves.hear("reply", node, this.context);
  }

  write(text) {
    if (this.conversation.busy) this.interrupt();
    const content = [{ type: "input_text", text }];
    this.transport.send({
      type: "conversation.item.create",
      item: { type: "message", role: "user", content },
    });
    this.transport.send({ type: "response.create" });
  }

  interrupt() {
    if (!this.conversation.busy) return;
    this.transport?.interrupt(this.conversation.replying);
    this.conversation.playing = false;
  }

  mute(muted) {
    for (const track of this.microphone?.getAudioTracks() ?? []) track.enabled = !muted;
    view.muted(muted);
  }

  change() {
    const session = wanted();
    // The voice is fixed after the first spoken reply.
    if (this.conversation.spoken) delete session.audio.output;
    this.transport?.send({ type: "session.update", session });
  }

  closed(reason) {
    this.fail(reason ? `The server ended the conversation: ${reason}.` : "Disconnected.");
  }

  fail(message) {
    if (this.over) return;
    this.end();
    view.error(message);
  }

  end() {
    this.over = true;
    if (talk === this) talk = null;
    this.transport?.close();
    for (const track of this.microphone?.getTracks() ?? []) track.stop();
    this.lock?.release();
    this.context.close();
    waves.hear("user", null);
    waves.hear("reply", null);
    waves.stop();
    find("sink").srcObject = null;
    view.level(0);
    view.muted(false);
    view.talking(false);
    view.connection("Not connected");
    view.state("off");
  }

  alive() {
    if (this.over) throw new Ended();
  }
}

class Ended extends Error {}

// The session configuration that the controls select.
function wanted() {
  const chosen = new FormData(find("options"));
  const transcription = chosen.get("transcript") ? { model: "self" } : null;
  const voice = chosen.get("voice");
  return {
    type: "realtime",
    output_modalities: [chosen.get("reply")],
    audio: {
      input: { turn_detection: { type: "server_vad" }, transcription },
      output: voice ? { voice } : {},
    },
    include: ["mosslive.timing"],
  };
}

function chosenTransports(withMicrophone) {
  const chosen = find("transport").value;
  const socketOnly = chosen === "websocket" || !withMicrophone || !window.RTCPeerConnection;
  if (socketOnly) return [SocketTransport];
  return chosen === "webrtc" ? [RtcTransport] : [RtcTransport, SocketTransport];
}

function key() {
  return find("key").value.trim() || sessionStorage.getItem(KEY) || "";
}

// Begins a conversation; shows a message if that fails.
async function begin(withMicrophone) {
  view.error("");
  view.forget();
  const held = (talk = new Held());
  await attempt(held, () => held.begin(withMicrophone));
}

async function attempt(held, work) {
  try {
    await work();
  } catch (error) {
    if (held.over || error instanceof Ended) return;
    held.end();
    if (error instanceof Refused && error.status === 401) view.askForKey();
    view.error(inWords(error));
  }
}

function inWords(error) {
  const still = "You can still type.";
  if (error.name === "NotAllowedError") return `The browser denied the microphone. ${still}`;
  if (error.name === "NotFoundError") return `No microphone was found. ${still}`;
  if (error instanceof TypeError) return "Cannot reach the server.";
  return error.message;
}

async function loadVoices() {
  try {
    view.voices(await voices(key()));
  } catch (error) {
    if (error instanceof Refused && error.status === 401) find("key-row").hidden = false;
  }
}

// Event handlers of the controls.

find("talk").addEventListener("click", () => {
  if (!talk) begin(true);
  else if (!talk.microphone && talk.transport?.listen) attempt(talk, () => talk.addMicrophone());
  else talk.end();
});

find("interrupt").addEventListener("click", () => talk?.interrupt());
find("mute").addEventListener("click", () => {
  talk?.mute(find("mute").getAttribute("aria-pressed") !== "true");
});

addEventListener("keydown", (event) => {
  if (event.key === "Escape") talk?.interrupt();
});

find("write").addEventListener("submit", async (event) => {
  event.preventDefault();
  const text = find("text").value.trim();
  if (!text) return;
  find("text").value = "";
  if (!talk) await begin(false);
  if (talk) talk.write(text);
  else find("text").value = text; // keep the text
});

find("options").addEventListener("change", (event) => {
  if (event.target.id === "key") {
    sessionStorage.setItem(KEY, key());
    loadVoices();
  } else if (event.target.id === "voice" && talk?.conversation.spoken) {
    view.error("The voice changes in the next conversation.");
  } else if (event.target.id !== "transport") {
    talk?.change();
  }
});
find("options").addEventListener("submit", (event) => event.preventDefault());

// Phones suspend the audio of a page in the background.
document.addEventListener("visibilitychange", () => {
  if (!document.hidden) talk?.context.resume();
});

addEventListener("pagehide", () => talk?.end());

// A link may carry a key, `#key=ek_…`; it is removed from the address bar.
const given = new URLSearchParams(location.hash.slice(1)).get("key");
if (given) {
  sessionStorage.setItem(KEY, given);
  history.replaceState(null, "", location.pathname + location.search);
}

loadVoices();
