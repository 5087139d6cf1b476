standard-O3.o: build/cpu-native/standard-O3.h dev/make/standard.h
dev/make/standard.h:
