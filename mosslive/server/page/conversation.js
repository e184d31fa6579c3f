// Derives the state of a conversation from the session's events: who speaks, what was said, timing.
// Reports it to `view`. Does not know page elements or connections.

// Text shown for each state.
export const STATES = {
  off: "Press the button and talk.",
  connecting: "Connecting …",
  microphone: "Please allow the microphone.",
  listening: "Listening.",
  writing: "Connected. Type, or press to talk.",
  hearing: "You are speaking.",
  thinking: "One moment …",
  speaking: "Replying. Speak to interrupt.",
};

const SPOKEN = "Spoken";

export class Conversation {
  // `view`: state(name), session(session), said(id, role, words, note), timing(timing),
  // error(message).
  constructor(view) {
    this.view = view;
    this.items = new Map(); // id → { role, words, note }
    this.replying = false; // the model generates a reply
    this.playing = false; // a reply is being played
    this.hearing = false;
    this.reply = null; // item id of the last reply
    this.spoken = false; // a reply was played: the voice is fixed
    this.listens = true; // there is a microphone
    this.ended = ""; // reason, if the server ended it
  }

  get busy() {
    return this.replying || this.playing;
  }

  setPlaying(playing) {
    this.playing = playing;
    this.spoken ||= playing;
    this.show();
  }

  show() {
    if (this.hearing) this.view.state("hearing");
    else if (this.playing) this.view.state("speaking");
    else if (this.replying) this.view.state("thinking");
    else this.view.state(this.listens ? "listening" : "writing");
  }

  take(event) {
    const handler = this[event.type];
    if (handler) handler.call(this, event);
  }

  put(id, changes) {
    const item = { role: "user", words: "", note: "", ...this.items.get(id), ...changes };
    this.items.set(id, item);
    this.view.said(id, item.role, item.words, item.note);
  }

  add(id, more) {
    this.put(id, { role: "assistant", words: (this.items.get(id)?.words ?? "") + more, note: "" });
  }

  "session.created"() {
    this.show();
  }

  "session.updated"({ session }) {
    this.view.session(session);
  }

  "input_audio_buffer.speech_started"({ item_id, audio_start_ms }) {
    this.hearing = true;
    this.began = { item_id, audio_start_ms };
    this.show();
  }

  "input_audio_buffer.speech_stopped"({ item_id, audio_end_ms }) {
    this.hearing = false;
    this.replying = true; // a reply follows
    const ms = audio_end_ms - (this.began?.audio_start_ms ?? audio_end_ms);
    this.put(item_id, { role: "user", note: `${SPOKEN}, ${seconds(ms)}` });
    this.show();
  }

  "conversation.item.added"({ item }) {
    if (item.type !== "message") return;
    const words = item.content.map((part) => part.text ?? part.transcript ?? "").join(" ");
    if (item.role === "user" && words) this.put(item.id, { words, note: "" });
  }

  "conversation.item.input_audio_transcription.completed"({ item_id, transcript }) {
    if (transcript) this.put(item_id, { words: transcript });
  }

  "response.created"() {
    this.replying = true;
    this.show();
  }

  "response.output_text.delta"({ item_id, delta }) {
    this.add(item_id, delta);
  }

  "response.output_audio_transcript.delta"({ item_id, delta }) {
    this.add(item_id, delta);
  }

  "response.content_part.added"({ item_id, part }) {
    this.reply = item_id;
    if (part.type === "audio") this.put(item_id, { role: "assistant", note: SPOKEN });
  }

  "response.done"({ response }) {
    this.replying = false;
    if (response.status === "failed") {
      this.view.error(response.status_details?.error?.message ?? "The reply failed.");
    }
    for (const item of response.output) {
      const cut = response.status === "cancelled" && this.items.get(item.id);
      if (cut) this.put(item.id, { note: "Interrupted" });
    }
    this.show();
  }

  "conversation.item.truncated"({ item_id, audio_end_ms }) {
    const heard = audio_end_ms ? `Interrupted after ${seconds(audio_end_ms)}` : "Not heard";
    this.put(item_id, { role: "assistant", note: heard });
  }

  "mosslive.timing"({ timing }) {
    const reply = this.items.get(this.reply);
    if (reply?.note === SPOKEN) {
      this.put(this.reply, { note: `${SPOKEN}, ${seconds(1000 * timing.audio_s)}` });
    }
    this.view.timing(timing);
  }

  error({ error }) {
    // The response had just ended: not an error.
    if (error.code === "response_cancel_not_active") return;
    if (error.code === "session_ended") this.ended = error.message;
    this.view.error(error.message);
  }
}

export function seconds(ms) {
  return `${(ms / 1000).toFixed(1)} s`;
}
