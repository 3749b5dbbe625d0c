
// The charts of the report, from the JSON beside this script.
for (const chart of JSON.parse(document.getElementById("data").textContent).charts) {
  new Chart(document.getElementById(chart.id), chart);
}
