// Finds and makes elements of the page.

export const find = (id) => document.getElementById(id);

export function element(name, className = "", text = "") {
  const made = document.createElement(name);
  made.className = className;
  made.textContent = text;
  return made;
}
