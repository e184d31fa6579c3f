// One call: the microphone, a conversation, and the connection that carries it, which is made again
// when it breaks. Knows the transports and the view by their methods only.

import { Conversation } from "./conversation.js";
import { find } from "./elements.js";
import { inWords, sentence } from "./errors.js";
import { pause } from "./health.js";
import { SilenceWatch, openMicrophone, useSpeaker } from "./microphone.js";
import { PushToTalk } from "./push-to-talk.js";
import { delays, isFinal, mayReturn } from "./reconnect.js";
import { Refused } from "./server.js";
import { apiKey, captions, chosenTransports, holdsToTalk, sessionConfig } from "./settings.js";

const STABLE_MS = 10000; // a connection that lasted so long begins the delays anew
const NO_SOUND = "No sound comes from the microphone. Check that it is not muted, or choose another.";

export class Call {
  // `page`: view, waves, watch, recorder, events (the event log); ended(call, message).
  constructor(page) {
    this.page = page;
    this.over = false;
    this.muted = false;
    this.push = new PushToTalk(this);
    // Created and resumed inside a click: phones allow sound only then.
    this.context = new AudioContext({ latencyHint: "interactive" });
    this.context.resume();
    this.sink = find("sink");
    this.sink.play().catch(() => {});
    if (navigator.audioSession) navigator.audioSession.type = "play-and-record";
    this.startConversation();
  }

  startConversation() {
    this.conversation = new Conversation(this.page.view, captions);
    this.setWaits();
  }

  async begin(withMicrophone) {
    const { view, waves, recorder } = this.page;
    view.call("connecting");
    if (withMicrophone) await this.takeMicrophone();
    this.alive();
    view.state("connecting");
    useSpeaker(this.sink, this.context).catch(() => {});
    recorder.begin(this.context).catch(() => {});
    await this.connect();
    this.connected();
    const silence = new SilenceWatch((silent) => view.hint(silent ? NO_SOUND : ""));
    waves.run((user, reply) => {
      view.level(Math.max(user, reply));
      if (this.conversation.waits === "listening") silence.level(user);
      else silence.restart();
    });
  }

  // Adds the microphone to a conversation that began with text, or takes another one.
  async useMicrophone() {
    const before = this.microphone;
    await this.takeMicrophone();
    for (const track of before?.getTracks() ?? []) track.stop();
    this.alive();
    this.transport.listen(this.microphone);
    this.connected();
  }

  async takeMicrophone() {
    const { view, waves, recorder } = this.page;
    view.state("microphone");
    this.microphone = await openMicrophone();
    const source = this.context.createMediaStreamSource(this.microphone);
    waves.hear("user", source, this.context);
    recorder.hear(0, source);
    const [track] = this.microphone.getAudioTracks();
    track.onended = () => this.fail("The microphone was disconnected. Connect it and call again.");
    track.onmute = () => view.hint("The system has muted the microphone. Unmute it to be heard.");
    track.onunmute = () => view.hint("");
    this.hearMicrophone(!this.muted && !holdsToTalk());
    this.setWaits();
    navigator.wakeLock?.request("screen").then(
      (lock) => (this.over ? lock.release() : (this.lock = lock)),
      () => {},
    );
  }

  async connect() {
    const transports = chosenTransports(Boolean(this.microphone));
    for (const [index, Transport] of transports.entries()) {
      const transport = (this.transport = new Transport(this.listeners()));
      try {
        await transport.open({
          key: apiKey(),
          session: sessionConfig(),
          microphone: this.microphone ?? null,
          context: this.context,
          sink: this.sink,
        });
        return;
      } catch (error) {
        transport.close();
        const final = error instanceof Refused && error.status < 500 && error.status !== 404;
        if (this.over || final || index + 1 === transports.length) throw error;
      }
    }
  }

  listeners() {
    return {
      event: (event) => {
        this.page.events.add("in", event);
        this.conversation.take(event);
      },
      sent: (event) => this.page.events.add("out", event),
      playing: (playing) => this.conversation.setPlaying(playing),
      heard: (item, ms) => this.conversation.heard(item, ms),
      output: (output) => this.showOutput(output),
      closed: (code, reason) => this.closed(code, reason || this.conversation.ended),
    };
  }

  connected() {
    this.alive();
    const { view, watch } = this.page;
    this.since = performance.now();
    view.connection(`Connected over ${this.transport.constructor.name}`);
    view.call(this.microphone ? "talking" : "writing");
    this.conversation.show();
    const { transport } = this;
    watch.follow(
      () => transport.signs(),
      () => transport === this.transport && this.closed(0, ""),
    );
  }

  showOutput(output) {
    const { waves, recorder } = this.page;
    const node =
      output instanceof MediaStream ? this.context.createMediaStreamSource(output) : output;
    waves.hear("reply", node, this.context);
    recorder.hear(1, node);
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
    this.muted = muted;
    this.hearMicrophone(!muted);
    this.setWaits();
    this.page.view.muted(muted);
    this.conversation.show();
  }

  hearMicrophone(hears) {
    for (const track of this.microphone?.getAudioTracks() ?? []) track.enabled = hears;
  }

  setWaits() {
    const spoken = holdsToTalk() ? "holding" : this.muted ? "muted" : "listening";
    this.conversation.waits = this.microphone ? spoken : "writing";
  }

  // The settings have changed.
  change() {
    const session = sessionConfig();
    // The voice is fixed after the first spoken reply.
    if (this.conversation.spoken) delete session.audio.output;
    this.transport?.send({ type: "session.update", session });
    this.muted = false;
    this.page.view.muted(false);
    this.hearMicrophone(!holdsToTalk());
    this.setWaits();
    this.conversation.show();
  }

  // The connection is gone: makes a new one, unless the server meant the end.
  async closed(code, reason) {
    if (this.over || this.reconnecting) return;
    const { view, log, watch } = this.page;
    watch.unfollow();
    this.transport?.close();
    if (!mayReturn(code, reason)) {
      this.fail(`The server ended the call: ${sentence(reason)} Press Talk to call again.`);
      return;
    }
    log.note(reason ? `${sentence(reason)} Reconnecting …` : "Connection lost. Reconnecting …");
    view.connection("Reconnecting …");
    view.state("reconnecting");
    view.call("connecting");
    const lasted = performance.now() - this.since > STABLE_MS;
    this.delays = lasted || !this.delays ? delays() : this.delays;
    this.reconnecting = true;
    await this.reconnect();
    this.reconnecting = false;
  }

  async reconnect() {
    let last = null;
    for (const delayMs of this.delays) {
      await pause(delayMs);
      if (this.over) return;
      this.startConversation();
      try {
        await this.connect();
        if (this.over) return;
        this.page.log.note("Connected again. The model does not remember what was said before.");
        this.page.view.error("");
        this.connected();
        return;
      } catch (error) {
        if (this.over) return;
        last = error;
        this.page.view.error(inWords(error));
        if (isFinal(error)) break;
      }
    }
    this.fail(inWords(last ?? new Error("The connection was lost.")));
  }

  fail(message) {
    if (this.over) return;
    this.end();
    this.page.view.error(message);
  }

  end() {
    this.over = true;
    const { view, waves, watch, recorder } = this.page;
    watch.unfollow();
    this.transport?.close();
    recorder.end();
    for (const track of this.microphone?.getTracks() ?? []) track.stop();
    this.lock?.release();
    this.context.close();
    waves.hear("user", null);
    waves.hear("reply", null);
    waves.stop();
    this.sink.srcObject = null;
    view.ended();
    this.page.ended(this);
  }

  alive() {
    if (this.over) throw new Ended();
  }
}

// The user has hung up meanwhile.
export class Ended extends Error {}
