// A click on a figure shows it as large as the window; a click or Escape closes it.
document.addEventListener("click", (event) => {
  const image = event.target.closest(".md-content img")
  if (!image || image.closest("a")) return
  const dialog = document.createElement("dialog")
  dialog.className = "enlarged"
  dialog.append(image.cloneNode())
  dialog.addEventListener("click", () => dialog.close())
  dialog.addEventListener("close", () => dialog.remove())
  document.body.append(dialog)
  dialog.showModal()
})
