// The connection of a call: made over the first transport that works, and made again, with a new
// session, when it breaks. Does not know the controls or elements of the page.

import { inWords, sentence } from "./errors.js";
import { pause } from "./health.js";
import { delays, isFinal, mayReturn } from "./reconnect.js";
import { Refused } from "./server.js";
import { chosenTransports } from "./settings.js";

const STABLE_MS = 10000; // a connection that lasted so long begins the delays anew

export class Connection {
  // `on`: the listeners of a transport, and connected(again), lost(words), tried(words),
  // failed(words). `options()`: what a transport opens with, at that moment.
  constructor(watch, options, on) {
    Object.assign(this, { watch, options, on });
    this.transport = null;
    this.over = false;
    this.breaking = false; // it is being made again
    this.ready = false; // events of the user can be sent
  }

  async open() {
    await this.connect();
    this.opened(false);
  }

  async connect() {
    const options = this.options();
    const transports = chosenTransports(Boolean(options.microphone));
    for (const [index, Transport] of transports.entries()) {
      const closed = (code, reason) => this.closed(code, reason);
      const transport = (this.transport = new Transport({ ...this.on, closed }));
      try {
        await transport.open(options);
        return;
      } catch (error) {
        transport.close();
        const final = error instanceof Refused && error.status < 500 && error.status !== 404;
        if (this.over || final || index + 1 === transports.length) throw error;
      }
    }
  }

  opened(again) {
    if (this.over) return this.transport.close();
    const { transport } = this;
    this.ready = true;
    this.since = performance.now();
    this.watch.follow(
      () => transport.signs(),
      () => transport === this.transport && this.closed(0, ""),
    );
    this.on.connected(again);
  }

  // The connection is gone: makes a new one, unless the server meant the end.
  async closed(code, given) {
    if (this.over || this.breaking) return;
    this.ready = false;
    this.watch.unfollow();
    this.transport.close();
    const reason = given || this.on.reason();
    if (!mayReturn(code, reason)) {
      this.on.failed(`The server ended the call: ${sentence(reason)} Press Talk to call again.`);
      return;
    }
    this.on.lost(`${reason ? sentence(reason) : "Connection lost."} Reconnecting …`);
    const lasted = performance.now() - this.since > STABLE_MS;
    this.delays = lasted || !this.delays ? delays() : this.delays;
    this.breaking = true;
    const failure = await this.reconnect();
    this.breaking = false;
    if (this.over) return;
    if (failure) this.on.failed(inWords(failure));
    else this.opened(true);
  }

  // Returns the error that remains.
  async reconnect() {
    let failure = new Error("The connection was lost.");
    for (let next = this.delays.next(); !next.done; next = this.delays.next()) {
      await pause(next.value);
      if (this.over) return null;
      try {
        await this.connect();
        return null;
      } catch (error) {
        if (this.over || isFinal(error)) return error;
        failure = error;
        this.on.tried(inWords(error));
      }
    }
    return failure;
  }

  close() {
    this.over = true;
    this.ready = false;
    this.watch.unfollow();
    this.transport?.close();
  }
}
