// The one tooltip: what is known of the token or the node under the pointer or the focus.

const tip = {
  box: document.getElementById("tip"),
  owner: null,

  /** Show pairs of name and value beside an element, under a title. */
  show(owner, title, rows, note = "") {
    this.hide();
    this.box.replaceChildren(el("strong", {}, title));
    const list = el("dl");
    for (const [name, value] of rows) list.append(el("dt", {}, name), el("dd", {}, value));
    this.box.append(list);
    if (note) this.box.append(el("p", {}, note));
    this.box.hidden = false;
    this.owner = owner;
    owner.setAttribute("aria-describedby", "tip");
    this.place(owner.getClientRects()[0] ?? owner.getBoundingClientRect());
  },

  /** Below the element, or above it where there is no room; always within the window. */
  place(spot) {
    const { offsetWidth: width, offsetHeight: height } = this.box;
    const below = spot.bottom + 8;
    const top = below + height > innerHeight ? Math.max(4, spot.top - height - 8) : below;
    const left = Math.min(Math.max(4, spot.left), Math.max(4, innerWidth - width - 8));
    this.box.style.top = `${top}px`;
    this.box.style.left = `${left}px`;
  },

  hide() {
    this.owner?.removeAttribute("aria-describedby");
    this.owner = null;
    this.box.hidden = true;
  },

  /** Show `describe(element)` for the parts of `container` that carry data-i. */
  watch(container, describe) {
    const show = (event) => {
      const part = event.target.closest("[data-i]");
      if (part !== null && part !== this.owner) this.show(part, ...describe(part));
    };
    container.addEventListener("mouseover", show);
    container.addEventListener("focusin", show);
    container.addEventListener("mouseleave", () => this.hide());
    container.addEventListener("focusout", () => this.hide());
    container.addEventListener("scroll", () => this.hide());
  },
};
addEventListener("scroll", () => tip.hide(), { passive: true });
