// A small drawing board; the service finds and centres the ink.

const PEN = 20;

export class Sketch {
  constructor(canvas) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d", { willReadFrequently: true });
    this.clear();
    let last = null;
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      last = this.#place(event);
      this.#stroke(last, last);
    });
    canvas.addEventListener("pointermove", (event) => {
      if (last === null) return;
      const next = this.#place(event);
      this.#stroke(last, next);
      last = next;
    });
    for (const end of ["pointerup", "pointercancel"]) canvas.addEventListener(end, () => (last = null));
  }

  clear() {
    this.context.fillStyle = "#fff";
    this.context.fillRect(0, 0, this.canvas.width, this.canvas.height);
    this.empty = true;
  }

  #place(event) {
    const box = this.canvas.getBoundingClientRect();
    const scale = this.canvas.width / box.width;
    return [(event.clientX - box.left) * scale, (event.clientY - box.top) * scale];
  }

  #stroke(from, to) {
    Object.assign(this.context, { strokeStyle: "#000", lineWidth: PEN, lineCap: "round" });
    this.context.beginPath();
    this.context.moveTo(...from);
    this.context.lineTo(...to);
    this.context.stroke();
    this.empty = false;
  }

  picture() {
    return new Promise((done) => this.canvas.toBlob(done, "image/png"));
  }
}
