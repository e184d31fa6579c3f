// One call: the microphone, a conversation, and the connection that carries it. Knows the view by
// its methods only, and does not know how a connection is made.

import { Connection } from "./connection.js";
import { Conversation } from "./conversation.js";
import { find } from "./elements.js";
import { SilenceWatch, openMicrophone, useSpeaker } from "./microphone.js";
import { PushToTalk } from "./push-to-talk.js";
import { apiKey, captions, holdsToTalk, sessionConfig } from "./settings.js";

const NO_SOUND =
  "No sound comes from the microphone. Check that it is not muted, or choose another.";

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
    this.connection = new Connection(page.watch, () => this.options(), this.listeners());
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
    await this.connection.open();
    this.alive();
    view.begun();
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

  get transport() {
    return this.connection.transport;
  }

  // What a transport opens with.
  options() {
    return {
      key: apiKey(),
      session: sessionConfig(),
      microphone: this.microphone ?? null,
      context: this.context,
      sink: this.sink,
    };
  }

  listeners() {
    const { view, events } = this.page;
    return {
      event: (event) => {
        events.add("in", event);
        this.conversation.take(event);
      },
      sent: (event) => events.add("out", event),
      playing: (playing) => this.conversation.setPlaying(playing),
      heard: (item, ms) => this.conversation.heard(item, ms),
      output: (output) => this.showOutput(output),
      reason: () => this.conversation.ended,
      connected: (again) => this.connected(again),
      lost: (words) => this.lost(words),
      tried: (words) => view.error(words),
      failed: (words) => this.fail(words),
    };
  }

  connected(again = false) {
    const { view, log } = this.page;
    if (again) {
      log.note("Connected again. The model does not remember what was said before.");
      view.error("");
    }
    view.connection(`Connected over ${this.transport.constructor.name}`);
    view.call(this.microphone ? "talking" : "writing");
    view.muted(this.muted && !holdsToTalk());
    view.textWaits(false);
    this.conversation.show();
  }

  // A new session follows.
  lost(words) {
    const { view, log } = this.page;
    log.note(words);
    view.connection("Reconnecting …");
    view.call("connecting");
    this.startConversation();
    view.state("reconnecting");
  }

  showOutput(output) {
    const { waves, recorder } = this.page;
    const node =
      output instanceof MediaStream ? this.context.createMediaStreamSource(output) : output;
    waves.hear("reply", node, this.context);
    recorder.hear(1, node);
  }

  // False: not connected, nothing is sent.
  write(text) {
    if (!this.connection.ready) return false;
    if (this.conversation.busy) this.interrupt();
    const content = [{ type: "input_text", text }];
    const item = { type: "message", role: "user", content };
    if (!this.transport.send({ type: "conversation.item.create", item })) return false;
    this.transport.send({ type: "response.create" });
    return true;
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
    this.page.view.muted(this.muted && !holdsToTalk());
    this.hearMicrophone(!this.muted && !holdsToTalk());
    this.setWaits();
    this.conversation.refresh();
    this.conversation.show();
  }

  fail(message) {
    if (this.over) return;
    this.end();
    this.page.view.error(message);
  }

  end() {
    this.over = true;
    const { view, waves, recorder } = this.page;
    this.connection.close();
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
