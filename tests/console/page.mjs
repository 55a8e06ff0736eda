// As much of a page as forms and followers need: elements with values, texts and events.

class FakeElement extends EventTarget {
  constructor(tag) {
    super();
    Object.assign(this, { tag, children: [], dataset: {}, attributes: {}, hidden: false, disabled: false, text: "", own: "" });
    if (["input", "select", "textarea", "button"].includes(tag)) Object.assign(this, { type: tag === "input" ? "text" : tag, name: "" });
    if (tag === "input") this.checked = false;
    if (tag === "option") this.selected = false;
  }

  /** As a browser does: a text field has no line breaks, an area only `\n`, a choice one of its options or nothing. */
  get value() {
    if (this.tag === "select") return this.children.findLast((one) => one.selected)?.own ?? this.children[0]?.own ?? "";
    return this.own;
  }

  set value(text) {
    if (this.tag === "select") for (const one of this.children) one.selected = one.own === text;
    else if (this.tag === "textarea") this.own = text.replace(/\r\n?/g, "\n");
    else this.own = this.tag === "input" ? text.replace(/[\r\n]/g, "") : text;
  }

  get textContent() {
    return this.text + this.children.map((one) => one.textContent ?? one).join("");
  }

  set textContent(text) {
    this.children = [];
    this.text = text;
  }

  get tagName() {
    return this.tag.toUpperCase();
  }

  get childNodes() {
    return this.children;
  }

  append(...children) {
    this.children.push(...children.map((one) => (one instanceof FakeElement ? one : String(one))));
  }

  replaceChildren(...children) {
    this.children = [];
    this.append(...children);
  }

  setAttribute(name, value) {
    this.attributes[name] = String(value);
  }

  setCustomValidity(words) {
    this.validity = words;
  }

  reportValidity() {}

  click() {
    this.dispatchEvent(new Event("click"));
  }

  /** All elements below of this tag. */
  all(tag) {
    const below = this.children.filter((one) => one instanceof FakeElement);
    return below.flatMap((one) => [...(one.tag === tag ? [one] : []), ...one.all(tag)]);
  }
}

/** Puts a document in place, and what the page's code reports as faults into `faults`. */
export function openPage() {
  const page = Object.assign(new EventTarget(), { hidden: false, createElement: (tag) => new FakeElement(tag) });
  const faults = [];
  Object.assign(globalThis, { document: page, reportError: (error) => faults.push(error.message) });
  return { page, faults };
}
