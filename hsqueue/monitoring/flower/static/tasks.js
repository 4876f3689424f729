// Flower draws its list of tasks once; progress is worth asking for again, while nobody types or selects in it.
window.jQuery.fn.dataTable.ext.errMode = "none";
setInterval(() => {
  const typing = document.activeElement?.matches("#tasks-table_filter input");
  const selecting = String(getSelection()) !== "";
  if (!document.hidden && !typing && !selecting) window.jQuery("#tasks-table").DataTable().ajax.reload(null, false);
}, 2000);
