/* A client takes over WebSocket the burst that another publishes over TCP.
 *
 * Arguments: URL of either, topic, QoS, count. Two clients of one process can't both use WebSocket:
 * in Paho C 1.3 they share a buffer of frames.
 */
#include <MQTTClient.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void check(int is_right, const char *what)
{
    if (!is_right) {
        fprintf(stderr, "%s\n", what);
        exit(1);
    }
}

static MQTTClient connected(const char *url, const char *name)
{
    MQTTClient client;
    MQTTClient_connectOptions options = MQTTClient_connectOptions_initializer;
    options.cleansession = 1;
    options.maxInflightMessages = 1000;
    check(MQTTClient_create(&client, url, name, MQTTCLIENT_PERSISTENCE_NONE, NULL) == 0, "create");
    check(MQTTClient_connect(client, &options) == 0, "connect");
    return client;
}

int main(int count_of_arguments, char **arguments)
{
    static char payload[100000];
    check(count_of_arguments == 6, "expected two URLs, topic, QoS and count");
    char *topic = arguments[3];
    int qos = atoi(arguments[4]), count = atoi(arguments[5]), size, length;
    MQTTClient reader = connected(arguments[1], "paho-c-reader");
    MQTTClient writer = connected(arguments[2], "paho-c-writer");
    check(MQTTClient_subscribe(reader, topic, qos) == 0, "subscribe");
    for (int number = 0; number < count; number++) {
        memset(payload, 'a' + number % 26, sizeof payload);
        size = number % 50 == 49 ? (int)sizeof payload : 1 + number;
        check(MQTTClient_publish(writer, topic, size, payload, qos, 0, NULL) == 0, "publish");
    }
    for (int number = 0; number < count; number++) {
        char *name = NULL;
        MQTTClient_message *message = NULL;
        size = number % 50 == 49 ? (int)sizeof payload : 1 + number;
        int code = MQTTClient_receive(reader, &name, &length, &message, 10000);
        if ((code != MQTTCLIENT_SUCCESS && code != MQTTCLIENT_TOPICNAME_TRUNCATED) || !message) {
            fprintf(stderr, "%d of %d messages arrived\n", number, count);
            return 1;
        }
        check(message->payloadlen == size, "a message of another size");
        check(((char *)message->payload)[size - 1] == 'a' + number % 26, "another message");
        MQTTClient_freeMessage(&message);
        MQTTClient_free(name);
    }
    check(MQTTClient_disconnect(reader, 1000) == 0, "disconnect");
    check(MQTTClient_disconnect(writer, 1000) == 0, "disconnect");
    return 0;
}
