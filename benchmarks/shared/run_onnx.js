// node run_onnx.js FOLDER ROWS DIMENSIONS
// Runs every .onnx file of a folder on old.bin (float32), and writes NAME.vectors and NAME.variance.
const fs = require("fs");
const path = require("path");
const ort = require("onnxruntime-web");

(async () => {
  const [folder, rows, dims] = process.argv.slice(2);
  const bytes = fs.readFileSync(path.join(folder, "old.bin"));
  const numbers = new Float32Array(bytes.buffer, bytes.byteOffset, bytes.length / 4);
  for (const file of fs.readdirSync(folder).filter((name) => name.endsWith(".onnx"))) {
    const session = await ort.InferenceSession.create(fs.readFileSync(path.join(folder, file)));
    const old = new ort.Tensor("float32", numbers, [Number(rows), Number(dims)]);
    const outputs = await session.run({ old });
    for (const name of ["vectors", "variance"]) {
      const { buffer, byteOffset, byteLength } = outputs[name].data;
      fs.writeFileSync(
        path.join(folder, file.replace(".onnx", `.${name}`)),
        Buffer.from(buffer, byteOffset, byteLength),
      );
    }
  }
})();
