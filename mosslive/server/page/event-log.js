// Shows the events of the session, behind a switch. Sound is left out.

import { element, find } from "./elements.js";

const MOST = 500; // lines
const LONG = 400; // characters of one event

export class EventLog {
  constructor() {
    this.began = performance.now();
  }

  // `way`: "in" from the server, "out" to it.
  add(way, event) {
    if (!find("log-events").checked || event.type === "input_audio_buffer.append") return;
    const { type, event_id, ...rest } = event;
    const seconds = ((performance.now() - this.began) / 1000).toFixed(2);
    const line = element("li", way, `${seconds} ${way === "in" ? "←" : "→"} ${type} `);
    line.append(element("span", "quiet", JSON.stringify(rest).slice(0, LONG)));
    const list = find("events");
    list.append(line);
    while (list.childElementCount > MOST) list.firstChild.remove();
    list.scrollTop = list.scrollHeight;
  }

  show() {
    find("event-log").hidden = !find("log-events").checked;
  }
}
