// node run_onnx.js FOLDER ROWS
// Runs every .onnx file of a folder on the inputs that it asks for, old.bin and side.bin (float32),
// and writes NAME.vectors and NAME.variance.
const fs = require("fs");
const path = require("path");
const ort = require("onnxruntime-web");

(async () => {
  const [folder, rows] = process.argv.slice(2);
  const read = (name) => {
    const bytes = fs.readFileSync(path.join(folder, `${name}.bin`));
    const numbers = new Float32Array(bytes.buffer, bytes.byteOffset, bytes.length / 4);
    return new ort.Tensor("float32", numbers, [Number(rows), numbers.length / rows]);
  };
  for (const file of fs.readdirSync(folder).filter((name) => name.endsWith(".onnx"))) {
    const session = await ort.InferenceSession.create(fs.readFileSync(path.join(folder, file)));
    const given = Object.fromEntries(session.inputNames.map((name) => [name, read(name)]));
    const outputs = await session.run(given);
    for (const name of ["vectors", "variance"]) {
      const { buffer, byteOffset, byteLength } = outputs[name].data;
      fs.writeFileSync(
        path.join(folder, file.replace(/onnx$/, name)),
        Buffer.from(buffer, byteOffset, byteLength),
      );
    }
  }
})();
