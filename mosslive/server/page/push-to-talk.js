// Push to talk: the user's turn lasts while the button or the space bar is held. The session has no
// turn detection, so the page commits the turn and asks for the reply.

const LAST_MS = 200; // sound that is still on its way when the button is released
const LEAST_MS = 300; // a shorter press is a slip

export class PushToTalk {
  // `call`: conversation, transport, interrupt(), hearMicrophone(boolean).
  constructor(call) {
    this.call = call;
    this.since = null;
    this.ending = false; // released, and the turn is not committed yet
  }

  get held() {
    return this.since !== null;
  }

  press() {
    const { call } = this;
    if (this.held || !call.microphone) return;
    this.since = performance.now();
    if (!this.ending) {
      call.interrupt();
      call.transport.send({ type: "input_audio_buffer.clear" }); // the silence before
    }
    call.hearMicrophone(true);
    call.conversation.setHearing(true);
  }

  async release() {
    const { call } = this;
    if (!this.held) return;
    const heldMs = performance.now() - this.since;
    this.since = null;
    if (heldMs < LEAST_MS) {
      call.hearMicrophone(false);
      call.conversation.setHearing(false);
      return;
    }
    this.ending = true;
    await new Promise((resume) => setTimeout(resume, LAST_MS));
    this.ending = false;
    if (this.held) return; // pressed again: the same turn
    call.hearMicrophone(false);
    call.transport.send({ type: "input_audio_buffer.commit" });
    call.transport.send({ type: "response.create" });
    call.conversation.replying = true;
    call.conversation.setHearing(false);
  }
}
