// Makes elements. `text` becomes text, never HTML.

export function make(tag, options = {}, ...children) {
  const { text, ...attributes } = options;
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== undefined && value !== false) node.setAttribute(name, value === true ? "" : value);
  }
  if (text !== undefined) node.textContent = text;
  node.append(...children.filter(Boolean));
  return node;
}
