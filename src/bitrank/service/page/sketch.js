// A small drawing board, and its drawing as a picture: the ink, centred in a square, light on dark.

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
    this.context.fillStyle = "#000";
    this.context.fillRect(0, 0, this.canvas.width, this.canvas.height);
    this.empty = true;
  }

  #place(event) {
    const box = this.canvas.getBoundingClientRect();
    const scale = this.canvas.width / box.width;
    return [(event.clientX - box.left) * scale, (event.clientY - box.top) * scale];
  }

  #stroke(from, to) {
    Object.assign(this.context, { strokeStyle: "#fff", lineWidth: PEN, lineCap: "round" });
    this.context.beginPath();
    this.context.moveTo(...from);
    this.context.lineTo(...to);
    this.context.stroke();
    this.empty = false;
  }

  // The ink fills the middle 20 of 28 parts of a square, as in the digits' own pictures.
  async picture() {
    const [x, y, width, height] = this.#ink();
    const side = Math.max(width, height);
    const square = new OffscreenCanvas(112, 112);
    const context = square.getContext("2d");
    context.fillRect(0, 0, 112, 112);
    const scale = 80 / side;
    context.drawImage(
      this.canvas, x, y, width, height,
      (112 - width * scale) / 2, (112 - height * scale) / 2, width * scale, height * scale,
    );
    return square.convertToBlob({ type: "image/png" });
  }

  #ink() {
    const { width, height } = this.canvas;
    const { data } = this.context.getImageData(0, 0, width, height);
    let [left, top, right, bottom] = [width, height, 0, 0];
    for (let y = 0; y < height; y++) {
      for (let x = 0; x < width; x++) {
        if (data[4 * (y * width + x)] < 64) continue;
        [left, right] = [Math.min(left, x), Math.max(right, x)];
        [top, bottom] = [Math.min(top, y), Math.max(bottom, y)];
      }
    }
    return [left, top, right - left + 1, bottom - top + 1];
  }
}
