// Flower's page of workers asks whether it may ask again by itself.
var autorefresh = true;
