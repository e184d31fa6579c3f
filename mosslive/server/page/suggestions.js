// Questions that the bundled model was taught to answer, to say or to press.

import { element, find } from "./elements.js";

// One of each of its topics; see `recipes/bundled/grammar`.
const BUNDLED = [
  "What is the capital of Germany?",
  "What is three plus four?",
  "What day comes after Monday?",
  "What does a cow say?",
  "What is the opposite of hot?",
  "Count to five.",
];

export function suggest(bundled, ask) {
  find("suggestions").replaceChildren(
    ...BUNDLED.map((question) => {
      const button = element("button", "chip", question);
      button.type = "button";
      button.addEventListener("click", () => ask(question));
      return button;
    }),
  );
  find("suggest").hidden = !bundled;
}
