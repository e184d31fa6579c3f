// Derives the state of a conversation from the session's events: who speaks, what was said, timing.
// Reports it to `view`. Does not know page elements or connections.

import { Caption } from "./captions.js";
import { sentence } from "./errors.js";

const CODE_MS = 80; // of sound per audio token
const SPOKEN = "Spoken";

export class Conversation {
  // `view`: state(name), session(session), said(id, role, words, note), timing(timing),
  // error(message). `captions()`: whether spoken words are shown.
  constructor(view, captions) {
    this.view = view;
    this.captions = captions;
    this.items = new Map(); // id → { role, words, note, caption }
    this.replying = false; // the model generates a reply
    this.playing = false; // a reply is being played
    this.hearing = false;
    this.reply = null; // item id of the last reply
    this.spoken = false; // a reply was played: the voice is fixed
    this.waits = "listening"; // the state while nobody speaks
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

  setHearing(hearing) {
    this.hearing = hearing;
    this.show();
  }

  // So much of this reply was played; Infinity: all of it.
  heard(id, ms) {
    const caption = this.items.get(id)?.caption;
    if (!caption) return;
    caption.heardMs = ms;
    this.put(id, {});
  }

  show() {
    if (this.hearing) this.view.state("hearing");
    else if (this.playing) this.view.state("speaking");
    else if (this.replying) this.view.state("thinking");
    else this.view.state(this.waits);
  }

  // Captions were switched on or off.
  refresh() {
    for (const id of this.items.keys()) this.put(id, {});
  }

  take(event) {
    const handler = this[event.type];
    if (handler) handler.call(this, event);
  }

  put(id, changes) {
    const before = this.items.get(id);
    const item = { role: "user", words: "", note: "", ...before, ...changes };
    if (item.caption) item.words = this.captions() ? item.caption.words : "";
    this.items.set(id, item);
    this.view.said(id, item.role, item.words, item.note);
  }

  caption(id) {
    return this.items.get(id)?.caption ?? new Caption(); // a reply that is not shown
  }

  "session.updated"({ session }) {
    this.view.session(session);
  }

  "input_audio_buffer.speech_started"({ audio_start_ms }) {
    this.startMs = audio_start_ms;
    this.setHearing(true);
  }

  "input_audio_buffer.speech_stopped"({ item_id, audio_end_ms }) {
    this.replying = true; // a reply follows
    const ms = audio_end_ms - (this.startMs ?? audio_end_ms);
    this.put(item_id, { role: "user", note: `${SPOKEN}, ${seconds(ms)}` });
    this.setHearing(false);
  }

  // Of push to talk: there is no `speech_stopped`.
  "input_audio_buffer.committed"({ item_id }) {
    if (!this.items.has(item_id)) this.put(item_id, { role: "user", note: SPOKEN });
  }

  "conversation.item.added"({ item }) {
    if (item.type !== "message") return;
    const words = item.content.map((part) => part.text ?? part.transcript ?? "").join(" ");
    if (item.role === "user" && words) this.put(item.id, { words, note: "" });
  }

  "conversation.item.input_audio_transcription.completed"({ item_id, transcript }) {
    if (transcript && this.captions()) this.put(item_id, { words: transcript });
  }

  "response.created"() {
    this.replying = true;
    this.show();
  }

  "response.output_text.delta"({ item_id, delta }) {
    const words = (this.items.get(item_id)?.words ?? "") + delta;
    this.put(item_id, { role: "assistant", words, note: "" });
  }

  "response.content_part.added"({ item_id, part }) {
    this.reply = item_id;
    if (part.type !== "audio") return;
    this.put(item_id, { role: "assistant", note: SPOKEN, caption: new Caption() });
  }

  "mosslive.transcript"({ item_id, transcript, audio_ms }) {
    this.caption(item_id).replace(transcript, audio_ms);
    if (this.items.has(item_id)) this.put(item_id, {});
  }

  "response.output_audio_transcript.delta"({ item_id, delta }) {
    this.caption(item_id).append(delta);
  }

  "response.output_audio_transcript.done"({ item_id, transcript }) {
    if (transcript) this.caption(item_id).text = transcript;
  }

  "response.done"({ response }) {
    this.replying = false;
    if (response.status === "failed") {
      this.view.error(sentence(response.status_details?.error?.message ?? "the reply failed"));
    }
    const codes = response.usage?.output_token_details?.audio_tokens;
    for (const { id } of response.output) {
      if (!this.items.has(id)) continue;
      if (response.status === "cancelled") this.put(id, { note: "Interrupted" });
      else if (codes) this.caption(id).spanMs = codes * CODE_MS;
      this.put(id, {});
    }
    this.show();
  }

  "conversation.item.truncated"({ item_id, audio_end_ms }) {
    this.caption(item_id).cutMs = audio_end_ms;
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
    else this.view.error(sentence(error.message));
  }
}

export function seconds(ms) {
  return `${(ms / 1000).toFixed(1)} s`;
}
