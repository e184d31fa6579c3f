// The list of what was said. It stays until it is cleared, over several calls.

import { element, find } from "./elements.js";

export class Log {
  constructor() {
    new ResizeObserver(() => this.follow()).observe(find("log")); // a notice takes its place
  }

  // Shows or changes one entry. `id`: of the item.
  said(id, role, words, note) {
    const log = find("log");
    let line = [...log.children].find((one) => one.dataset.item === id);
    if (!line) {
      line = element("li");
      line.dataset.item = id;
      line.append(element("span", "who"), element("p", "said"), element("p", "note"));
      log.append(line);
    }
    line.className = role;
    const [who, text, detail] = line.children;
    who.textContent = role === "user" ? "You" : "Reply";
    if (text.textContent !== words) text.textContent = words;
    text.hidden = !words;
    if (detail.textContent !== note) detail.textContent = note;
    detail.hidden = !note;
    this.changed();
  }

  // A remark of the page itself.
  note(words) {
    const line = element("li", "remark");
    line.append(element("p", "note", words));
    find("log").append(line);
    this.changed();
  }

  begin() {
    if (!find("log").childElementCount) return;
    const time = new Date().toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
    this.note(`New call, ${time}. The model does not remember the call before.`);
  }

  clear() {
    find("log").replaceChildren();
    this.changed();
  }

  changed() {
    const log = find("log");
    this.follow();
    find("save-text").disabled = find("clear").disabled = !log.childElementCount;
    find("empty").hidden = Boolean(log.childElementCount);
  }

  // Keeps the newest entry in sight.
  follow() {
    find("log").scrollTop = find("log").scrollHeight;
  }

  // All entries, as the text file that is saved.
  text() {
    const lines = [...find("log").children].map((line) => {
      const [who, words, note] = [".who", ".said", ".note"].map(
        (part) => line.querySelector(part)?.textContent ?? "",
      );
      return [who && `${who}:`, words, note && `(${note})`].filter(Boolean).join(" ");
    });
    return `${lines.join("\n")}\n`;
  }
}
